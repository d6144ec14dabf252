package blackbox

import (
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

const (
	blocks  = "-DEADLOCK a LOCK blocks its connection, as BLPOP does: give locks a connection of their own\r\n"
	ownHold = "LOCK k OWNER j1"
	waiting = "LOCK k OWNER j2"
)

// A LOCK waits for a hold of its own connection, and what stands behind it must not wait.
func TestALockThatBlocksItsReleaseIsTold(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	for _, c := range map[string]struct {
		lines, replies []string
	}{
		"its release":           {[]string{ownHold, waiting, "UNLOCK k OWNER j1"}, []string{":", blocks, ":1"}},
		"a command of its task": {[]string{ownHold, waiting, "GET x", "UNLOCK k OWNER j1"}, []string{":", blocks, "$-1", ":1"}},
		"a shared hold":         {[]string{"LOCK k SHARED OWNER j1", waiting, "get x", "UNLOCK k OWNER j1"}, []string{":", blocks, "$-1", ":1"}},
		"all permits": {
			[]string{"LOCK k LIMIT 2", "LOCK k LIMIT 2", "FAIRLOCK k LIMIT 2", "UNLOCK k", "UNLOCK k"},
			[]string{":", ":", blocks, ":1", ":1"},
		},
		"an acquire of a library": {
			[]string{"CLIENT SETINFO LIB-NAME redis-any", "LOCK k", "LOCK k", "GET x"}, []string{"", ":", blocks, "$-1"},
		},
		"a limited wait": {[]string{ownHold, "TRYLOCK k OWNER j2 WAIT 600000", "UNLOCK k OWNER j1"}, []string{":", blocks, ":1"}},
		"behind what may wait": {
			[]string{ownHold, waiting, "PING", "client id", "", "LOCK k OWNER j3", "UNLOCK other", "EXTENDLOCK k PX 60000 OWNER j1", "UNLOCK k OWNER j1"},
			[]string{":", blocks, "+PONG", ":", blocks, "-NOTHELD", ":1", ":1"},
		},
	} {
		one := srv.Dial(t)
		one.Raw(proxytest.Inline(c.lines...))
		one.Gets(c.replies...)
		one.Quiet("FORCEUNLOCK", "k")
	}

	one := srv.Dial(t)
	one.Script(ownHold, ":")
	one.Send(strings.Fields(waiting)...)
	proxytest.WaitFor(t, "a wait", func() bool { return srv.Stats().Waiting == 1 })
	one.Raw("*3\r\n$3\r\nset\r\n$1\r\nx\r\n$1000000\r\nbegin")
	one.Gets(blocks)
	one.Raw(strings.Repeat("x", 1000000-len("begin")) + "\r\n")
	one.Gets("+OK")
	one.Script("UNLOCK k OWNER j1", ":1")
}

// The hold may end while what stands behind the LOCK waits.
func TestALockThatDoesNotBlockItsReleaseWaits(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	many := slicesOf("PING", 1+(64<<10)/len("PING\r\n"))
	for name, c := range map[string]struct {
		first, second string
		behind        []string
		replies       []string
	}{
		"nothing":                {ownHold, waiting, nil, nil},
		"commands that may wait": {ownHold, waiting, []string{"PING", "CLIENT ID", "TRYLOCK k", "UNLOCK k2"}, []string{"+PONG", ":", "$-1", "-NOTHELD"}},
		"a transaction":          {ownHold, waiting, []string{"MULTI", "GET x", "EXEC"}, []string{"+OK", "+QUEUED", "*1"}},
		"another database":       {ownHold, waiting, []string{"SELECT 1", "UNLOCK k", "SELECT 0"}, []string{"+OK", "-NOTHELD", "+OK"}},
		"too much to look at":    {ownHold, waiting, append(many, "GET x"), append(slicesOf("+PONG", len(many)), "$-1")},
		"a hold that ends":       {"LOCK k PX 60000 OWNER j1", waiting, []string{"GET x"}, []string{"$-1"}},
		"a hold with a limit":    {"LOCK k MAXHOLD 60000 OWNER j1", waiting, []string{"GET x"}, []string{"$-1"}},
		"another client's hold":  {"", "LOCK k OWNER j2", []string{"GET x", "UNLOCK k"}, []string{"$-1", "-NOTHELD"}},
		"one permit of its own":  {"LOCK k LIMIT 2", "LOCK k LIMIT 2", []string{"GET x"}, []string{"$-1"}},
	} {
		one, other := srv.Dial(t), srv.Dial(t)
		release := "UNLOCK k OWNER j1"
		switch {
		case c.first == "":
			other.Script(ownHold, ":")
		case strings.Contains(c.first, "LIMIT"):
			other.Script("LOCK k LIMIT 2", ":")
			release = "UNLOCK k"
		}
		lines := append([]string{c.second}, c.behind...)
		if c.first != "" {
			one.Script(c.first, ":")
		}
		one.Raw(proxytest.Inline(lines...))
		proxytest.WaitFor(t, name+": a wait", func() bool { return srv.Stats().Waiting == 1 })
		other.Script("PING", "+PONG", release, ":1")
		one.Gets(append([]string{":"}, c.replies...)...)
		one.Quiet("FORCEUNLOCK", "k")
	}
}

func slicesOf(s string, n int) (all []string) {
	for range n {
		all = append(all, s)
	}
	return all
}
