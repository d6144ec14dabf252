package blackbox

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// lockMany takes n locks, key:0 to key:n-1, with the options given.
func lockMany(t *testing.T, c *proxytest.Client, n int, options string) {
	t.Helper()
	var b strings.Builder
	for i := range n {
		b.WriteString("LOCK key:" + strconv.Itoa(i) + " " + options + "\r\n")
	}
	c.Raw(b.String())
	for range n {
		c.Gets(":")
	}
}

// A pattern of many stars took the matcher exponential time, under the engine's mutex.
func TestNoPatternOfLockListHoldsUpOthers(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	holder, lister, other := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	name := strings.Repeat("a", 4000)
	holder.Script("LOCK "+name, ":")
	lister.Raw("PING\r\nLOCKLIST MATCH " + strings.Repeat("*a", 100) + "b\r\nLOCKLIST MATCH a" + strings.Repeat("*", 100) + "a COUNT 1\r\nECHO end\r\n")
	for _, command := range []string{"PING", "LOCKINFO " + name, "TRYLOCK " + name, "UNLOCK " + name, "LOCK other"} {
		other.Raw(command + "\r\n")
		if got, err := other.Frame(); err != nil {
			t.Fatalf("%.20s: %q, %v", command, got, err)
		}
	}
	for _, want := range []string{"+PONG\r\n", "*0\r\n", "*1\r\n", "$3\r\nend\r\n"} { // in their order
		lister.Gets(want)
	}
}

func TestLockListIsAnsweredToAClientThatSendsNothingMore(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	holder, lister := srv.Dial(t), srv.Dial(t)
	lockMany(t, holder, 1000, "")
	lister.Raw("LOCKLIST\r\nECHO end\r\n")
	_ = lister.Conn.(interface{ CloseWrite() error }).CloseWrite()
	lister.Gets("*1000\r\n", "$3\r\nend\r\n")
}

func TestClientMayHangUpBeforeItsListIsMade(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	holder := srv.Dial(t)
	lockMany(t, holder, 1000, "")
	for range 20 {
		c := srv.Dial(t)
		c.Raw("LOCKLIST\r\nLOCKLIST\r\nLOCKLIST\r\n")
		_ = c.Conn.Close()
	}
	proxytest.WaitFor(t, "them to be gone", func() bool { return srv.Stats().Clients == 1 })
	holder.Raw("LOCKLIST COUNT 3\r\n")
	holder.Gets("*3\r\n")
}

func TestDefaultOwnersCannotBeGuessedNorNamed(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	ownerOf := func(c *proxytest.Client, key string) string {
		c.Script("LOCK "+key, ":")
		fields, _ := srv.Redis.Do(t, "HKEYS", key).([]any)
		for _, f := range fields {
			if name := f.(string); name != "fence" && name != "mode" && !strings.HasPrefix(name, "{") {
				return f.(string)
			}
		}
		t.Fatalf("no owner in %v", fields)
		return ""
	}
	a, b := srv.Dial(t), srv.Dial(t)
	first, again, second := ownerOf(a, "one"), ownerOf(a, "two"), ownerOf(b, "three")
	const session, process = 36 + 1 + 12, 36
	if first == again || first[:session+1] != again[:session+1] || first[:session] == second[:session] ||
		first[:process+1] != second[:process+1] {
		t.Errorf("owners %s and %s of one connection, %s of another", first, again, second)
	}
	for _, command := range []string{"UNLOCK one OWNER ", "EXTENDLOCK one PX 1 OWNER ", "LOCK one OWNER "} {
		b.Raw(command + first + "\r\n")
		b.Gets("-ERR OWNER cannot be the default owner of a connection\r\n")
	}
	a.Script("UNLOCK one", ":1")
}
