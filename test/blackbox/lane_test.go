package blackbox

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// warm has n clients that have been served.
func warm(t *testing.T, srv *proxytest.Proxy, n int, setup ...string) []*proxytest.Client {
	t.Helper()
	list := make([]*proxytest.Client, n)
	for i := range list {
		list[i] = srv.Dial(t)
		if len(setup) > 0 {
			list[i].Quiet(setup...)
		}
		list[i].Quiet("GET", "warm")
	}
	return list
}

// stalls has a client send a command with which its lane stands still, and waits until the lane has been set aside.
func stalls(t *testing.T, srv *proxytest.Proxy, c *proxytest.Client, args ...string) {
	t.Helper()
	before := srv.Stats().LanesSetAside
	c.Send(args...)
	proxytest.WaitFor(t, "the lane to be set aside", func() bool { return srv.Stats().LanesSetAside > before })
}

// Writes that are held back hold up nobody who reads, however many write.
func TestHeldBackWritesHoldUpNoReads(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	readers, writers := warm(t, srv, 8), warm(t, srv, 20)
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket()) // the proxy does not see the pause begin
	admin.Quiet("CLIENT", "PAUSE", "600000", "WRITE")
	stalls(t, srv, writers[0], "INCR", "n")
	for _, c := range writers[1:] {
		c.Send("INCR", "n")
	}
	for _, c := range readers {
		c.Script("GET n", "$-1")
		c.Raw(proxytest.Inline("GET n", "GET n"))
		for range 2 {
			c.Gets("$-1")
		}
	}
	// Of one client, nothing overtakes.
	readers[0].Raw(proxytest.Inline("GET n", "INCR mine", "GET mine"))
	readers[0].Gets("$-1")
	readers[1].Script("GET mine", "$-1")
	newcomer := srv.Dial(t)
	newcomer.Script("GET n", "$-1")
	admin.Quiet("CLIENT", "UNPAUSE")
	readers[0].Gets(":1", "$1\r\n1\r\n")
	for _, c := range writers {
		c.Gets(":")
	}
	proxytest.WaitFor(t, "one lane to take everything again", func() bool {
		return writers[0].Quiet("GET", "n") == "$2\r\n20\r\n" && !setAside(srv, writers[0])
	})
}

// A client whose command comes right behind a script without an end is told so, and can end it.
func TestScriptWithoutEndIsEndedByWhoComesNext(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t, "--busy-reply-threshold", "20"))
	c := warm(t, srv, 2)
	for i := range 20 {
		runs := c[0]
		if i%4 >= 2 { // or a client whose first command wrote
			runs = srv.Dial(t)
			runs.Quiet("SET", "k", "v")
		}
		before := "" // or a command in front of the script in one go
		if i%2 == 1 {
			before = proxytest.Inline("GET k")
		}
		runs.Raw(before + string(resp.AppendCommand(nil, "EVAL", "while true do end", "0")))
		proxytest.WaitFor(t, "-BUSY", func() bool { return strings.HasPrefix(c[1].Quiet("GET", "k"), "-BUSY ") })
		c[1].Script("SCRIPT KILL", "+OK")
		if before != "" {
			runs.Expect(1)
		}
		runs.Gets("-ERR ")
	}
}

// Lock commands travel on the same lanes.
func TestLockBesideALaneThatStandsStill(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := warm(t, srv, 3)
	fence := c[1].Quiet("LOCK", "l")
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	admin.Quiet("CLIENT", "PAUSE", "600000", "WRITE")
	stalls(t, srv, c[0], "INCR", "n")
	c[1].Raw(proxytest.Inline("GET own", "UNLOCK l", "INCR own", "GET own"))
	c[1].Gets("$-1")
	c[2].Send("LOCK", "l")
	admin.Quiet("CLIENT", "UNPAUSE")
	c[1].Gets(":1", ":1", "$1\r\n1\r\n")
	if b, err := c[2].Frame(); err != nil || proxytest.Integer(t, b) <= proxytest.Integer(t, fence) {
		t.Errorf("the next fence is %q %v after %q", b, err, fence)
	}
}

// A client whose lane stands still keeps its order, whatever it goes on to send.
func TestOrderOfOneClientWhoseLaneIsSetAside(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := warm(t, srv, 2)
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	for round := range 3 {
		admin.Quiet("CLIENT", "PAUSE", "600000", "WRITE")
		stalls(t, srv, c[0], "INCR", "n")
		c[0].Raw(proxytest.Inline("GET n", "INCR n", "GET n"))
		c[1].Quiet("GET", "n")
		admin.Quiet("CLIENT", "UNPAUSE")
		for i := range 4 {
			n := 2*round + 1 + i/2
			want := fmt.Sprintf(":%d\r\n", n)
			if i%2 == 1 {
				want = fmt.Sprintf("$1\r\n%d\r\n", n)
			}
			c[0].Gets(want)
		}
		proxytest.WaitFor(t, "the lane to be back", func() bool { c[1].Quiet("GET", "n"); return !setAside(srv, c[1]) })
	}
}

// setAside reports whether the lane of a client's session stands still.
func setAside(srv *proxytest.Proxy, c *proxytest.Client) bool { return srv.StatusOf(c).SetAside }

// How soon a lane is set aside decides how long others wait at most.
func TestOthersWaitShortlyForALaneThatStandsStill(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := warm(t, srv, 2)
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	proxytest.InTime(t, "the wait", time.Second, func() time.Duration {
		admin.Quiet("CLIENT", "PAUSE", "600000", "WRITE")
		begin := time.Now()
		stalls(t, srv, c[0], "INCR", "n")
		c[1].Quiet("GET", "n")
		took := time.Since(begin)
		admin.Quiet("CLIENT", "UNPAUSE")
		c[0].Gets(":")
		return took
	})
}

// A client whose replies are large does not cost others their connection when Redis closes the one that they come on.
func TestLargeRepliesCostOnlyThoseWhoAskForThem(t *testing.T) {
	t.Parallel()
	const size = 1 << 20
	srv := proxytest.Start(t, redistest.Start(t, "--client-output-buffer-limit", "normal 24mb 0 0"))
	srv.Redis.Do(t, "SET", "big", strings.Repeat("x", size))
	proxytest.WaitFor(t, "the limits to be known", srv.Shared().Upstream.Tight)
	small, greedy := warm(t, srv, 4), srv.Dial(t)
	var others proxytest.Meanwhile
	for i, c := range small {
		c.Side = &proxytest.Side{T: t}
		others.Go(func(int) bool {
			c.Send("GET", "k")
			b, err := c.Frame()
			if err != nil || b != "$-1\r\n" {
				t.Errorf("client %d: %q %v", i, b, err)
				return false
			}
			return true
		})
	}
	greedy.Raw(strings.Repeat(proxytest.Inline("GET big"), 100)) // Redis closes the connection on which it gets this
	greedy.Side = &proxytest.Side{T: t}
	got := 0
	for ; got < 100; got++ {
		if b, err := greedy.Frame(); err != nil {
			break
		} else if len(b) != len("$1048576\r\n")+size+2 {
			t.Fatalf("a reply of %d bytes", len(b))
		}
	}
	if got == 100 {
		t.Error("Redis has closed nothing")
	}
	others.End()
}
