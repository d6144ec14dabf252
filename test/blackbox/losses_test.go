package blackbox

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestEveryLossIsTold loses more locks than a session's share of what is remembered without being asked for.
func TestEveryLossIsTold(t *testing.T) {
	t.Parallel()
	const n = 1500
	for _, how := range []string{"FLUSHALL", "FORCEUNLOCK", "deadline"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Locks.Lease = 6 * time.Second })
			c, other := srv.Dial(t), srv.Dial(t)
			var lock, unlock strings.Builder
			for i := range n {
				key := strconv.Itoa(i)
				if how == "deadline" {
					key += " PX 2000"
				}
				lock.WriteString("LOCK " + key + "\r\n")
				unlock.WriteString("UNLOCK " + strconv.Itoa(i) + "\r\n")
			}
			c.Raw(lock.String())
			for range n {
				c.Gets(":")
			}
			switch how {
			case "FLUSHALL":
				redis.Do(t, "FLUSHALL")
			case "FORCEUNLOCK":
				other.Raw(strings.ReplaceAll(unlock.String(), "UNLOCK", "FORCEUNLOCK"))
				for range n {
					other.Gets(":1")
				}
			}
			proxytest.WaitFor(t, "the losses", func() bool { return srv.Stats().Held == 0 })
			for _, want := range []string{"-LOSTLEASE ", "-NOTHELD "} {
				c.Raw(unlock.String())
				for i := range n {
					if got, err := c.LateFrame(); err != nil || !strings.HasPrefix(got, want) {
						t.Fatalf("%d: %q, %v, want %s", i, got, err, want)
					}
				}
			}
		})
	}
}

// TestOverwrittenHoldIsToldByAPush needs no command of the client.
func TestOverwrittenHoldIsToldByAPush(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Locks.Lease = 2 * time.Second })
	c := srv.Dial(t)
	c.Script("HELLO 3", "%", "LOCK k", ":")
	srv.Redis.Do(t, "SET", "k", "x")
	c.ExpectFrame("lock-lost")
	c.Script("LOCK k", "-LOSTLEASE", "LOCK k", "-WRONGTYPE", "UNLOCK k", "-WRONGTYPE")
}

// TestALossIsToldInFrontOfLaterReleases has a client send more commands behind a loss in one go. It gets the replies that it would get one by one.
func TestALossIsToldInFrontOfLaterReleases(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	watcher, other := srv.Dial(t), srv.Dial(t)
	watcher.Script("SUBSCRIBE lockproxy:lost:{k}", "*3")
	for _, c := range []struct {
		commands []string
		want     []string
	}{
		{[]string{"LOCK k", "DEL k", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "DEL k", "UNLOCK k", "PING", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "+PONG", "-NOTHELD", "-NOTHELD"}},
		{[]string{"LOCK k OWNER me", "DEL k", "UNLOCK k OWNER me", "UNLOCK k OWNER me"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "LOCK k", "DEL k", "UNLOCK k", "UNLOCK k"}, []string{":", ":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "DEL k", "EXTENDLOCK k PX 9000", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "DEL k", "UNLOCK k", "EXTENDLOCK k PX 9000"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "DEL k", "EXTENDLOCK k PX 9000", "EXTENDLOCK k PX 9000"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
		{[]string{"LOCK k", "SET k x", "UNLOCK k", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
		{[]string{"LOCK k", "SET k x", "EXTENDLOCK k PX 9000", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
		{[]string{"LOCK k", "SET k x", "LOCK k WAIT 0", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
		{[]string{"LOCK k", "SET k x", "FAIRLOCK k WAIT 0", "FAIRLOCK k WAIT 0", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
		{[]string{"LOCK k OWNER me", "DEL k", "LPUSH k x", "TRYLOCK k OWNER me", "UNLOCK k OWNER me", "DEL k"}, []string{":", ":1", ":1", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
		{[]string{"LOCK k", "DEL k", "HSET k x 1", "LOCK k WAIT 0", "UNLOCK k", "UNLOCK k", "DEL k"}, []string{":", ":1", ":1", "$-1", "-LOSTLEASE", "-NOTHELD", ":1"}}, // a hash may be another's lock
		{[]string{"LOCK k", "DEL k", "HSET k x 1", "EXTENDLOCK k PX 9000", "EXTENDLOCK k PX 9000", "DEL k"}, []string{":", ":1", ":1", "-LOSTLEASE", "-NOTHELD", ":1"}},
		{[]string{"LOCK k", "DEL k", "UNLOCK k FENCE 1", "UNLOCK k"}, []string{":", ":1", "-NOTHELD", "-LOSTLEASE"}},
		{[]string{"LOCK k", "UNLOCK k", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-NOTHELD", "-NOTHELD"}},
	} {
		client := srv.Dial(t)
		client.Raw(strings.Join(c.commands, "\r\n") + "\r\n")
		for i, want := range c.want {
			if got, err := client.Frame(); err != nil || !strings.HasPrefix(got, want) {
				t.Fatalf("%q: reply %d is %q, %v, want %s", c.commands, i, got, err, want)
			}
		}
		if slices.Contains(c.want, "-LOSTLEASE") {
			watcher.ExpectFrame("lockproxy:lost:{k}")
		}
	}
	holder := srv.Dial(t)
	holder.Script("HELLO 3", "%", "LOCK k OWNER me", ":", "DEL k", ":1")
	other.Raw("UNLOCK k OWNER me\r\nUNLOCK k OWNER me\r\n") // of a session that has not held it
	for range 2 {
		other.Gets("-NOTHELD")
	}
	holder.ExpectFrame("lock-lost")
}

// TestAForcedEndIsToldToAHolderOfAnotherUser: an operator who ends a lock is rarely the user who holds it.
func TestAForcedEndIsToldToAHolderOfAnotherUser(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Locks.Lease = time.Hour })
	holder, sameName, other := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	for _, c := range []*proxytest.Client{holder, sameName} {
		c.Send("HELLO", "3", "AUTH", "tenant", "pw")
		c.Expect(1)
	}
	sameName.Send("SELECT", "1") // a lock of another database
	sameName.Gets("+OK")
	for _, c := range []*proxytest.Client{holder, sameName} {
		c.Script("LOCK a OWNER me", ":")
	}
	other.Script("FORCEUNLOCK a", ":1")
	got, err := holder.Frame()
	if err != nil || !strings.HasPrefix(got, ">4\r\n$9\r\nlock-lost\r\n$1\r\na\r\n") || !strings.HasSuffix(got, "\r\nforced\r\n") {
		t.Errorf("%q, %v", got, err)
	}
	holder.Script("UNLOCK a OWNER me", "-LOSTLEASE")
	sameName.Script("UNLOCK a OWNER me", ":1")
}
