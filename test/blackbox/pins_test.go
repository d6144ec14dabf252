package blackbox

import (
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// traces are commands that leave something on a connection, or might.
var traces = []string{
	"SELECT 3", "HELLO 3", "HELLO 2", "HELLO 3 SETNAME n1", "CLIENT SETNAME n2", "CLIENT SETNAME n3", `CLIENT SETNAME ""`, "AUTH bob pw", "AUTH bob wrong", "AUTH default x", "AUTH carol pw",
	"HELLO 2 AUTH bob pw SETNAME n4", "HELLO 3 AUTH bob pw BAD", "HELLO 2 SETNAME n5 BAD", "CLIENT NO-EVICT on", "CLIENT NO-EVICT off", "CLIENT TRACKING ON", "CLIENT TRACKING ON BCAST NOLOOP", "CLIENT TRACKING OFF",
	"SCRIPT DEBUG YES", "SCRIPT DEBUG NO", "CLIENT REPLY ON", "CLIENT REPLY SKIP", "SUBSCRIBE a", "PSUBSCRIBE b*", "SSUBSCRIBE c", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "MULTI", "EXEC", "DISCARD",
	"WATCH k", "UNWATCH", "READONLY", "READWRITE", "ASKING", "CLIENT ID", "CLIENT CACHING YES", "CLIENT GETREDIR", "REPLCONF capa eof", "REPLCONF ACK 1", "MONITOR", "DEBUG SLEEP 0", "BLPOP l 0.001", "WAIT 0 0", "RESET", "GET k", "SET k v",
	"NOSUCH", "CLIENT NOSUCH", "CLIENT SETINFO lib-name x", "TRYLOCK lk GRACE 0", "UNLOCK lk", "CLIENT NO-TOUCH on", "SCRIPT LOAD return", "CLIENT UNPAUSE",
}

// Whatever a client does to its connections, the next client finds them as if they were new.
func TestTheNextClientFindsAConnectionAsIfItWereNew(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--enable-debug-command", "yes")
	redis.Do(t, "ACL", "SETUSER", "bob", "reset", "on", ">pw", "~*", "&*", "+@all", "-client|setname", "-client|no-evict")
	redis.Do(t, "ACL", "SETUSER", "carol", "reset", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis)
	var drawn []string
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the last client's commands: %q", drawn)
		}
	})
	rapid.Check(t, func(rt *rapid.T) {
		a := srv.Dial(t)
		lines := rapid.SliceOfN(rapid.SampledFrom(traces), 1, 8).Draw(rt, "commands")
		a.Raw(proxytest.Inline(lines...) + proxytest.Inline("CLIENT REPLY ON"))
		end := rapid.SampledFrom([]string{"close", "reset", "reset and close", "half-close"}).Draw(rt, "end")
		drawn = append(lines, end)
		switch end {
		case "close":
			_ = a.Conn.Close()
		case "half-close":
			a.HalfClose()
		case "reset":
			a.Raw(proxytest.Inline("RESET", "PING the-end"))
			a.Side = &proxytest.Side{T: t}
			a.Until("the-end")
		case "reset and close":
			a.Raw(proxytest.Inline("RESET"))
			_ = a.Conn.Close()
		}
		other := rapid.SampledFrom([]string{"HELLO 3", "AUTH carol pw", "SELECT 3"}).Draw(rt, "login")
		for _, login := range []string{"PING", "AUTH bob pw", other} {
			pristine(rt, t, redis, srv, login)
		}
		_ = a.Conn.Close()
		proxytest.WaitFor(t, "all clients to be gone", func() bool { return srv.Stats().Clients == 0 })
	})
}

var inBRPOP = regexp.MustCompile(`(?m)^.* flags=\S*b\S* .* cmd=brpop .*$`)

// pristine has a client that has only logged in look at a connection of its own.
func pristine(rt *rapid.T, t *testing.T, redis *redistest.Server, srv *proxytest.Proxy, login string) {
	c := srv.Dial(t)
	defer c.Conn.Close()
	c.Quiet(strings.Fields(login)...)
	c.Quiet("WATCH", "w") // a pin from here on
	if got := c.Quiet("EVAL", "return 1", "0"); got != ":1\r\n" {
		rt.Errorf("%s: EVAL: %q", login, got)
	}
	c.Send("BRPOP", "probe", "0") // the BLPOP of the client before may not have ended yet
	var line string
	proxytest.WaitFor(t, "the blocked client", func() bool {
		list, _ := redis.Do(t, "CLIENT", "LIST").(string)
		line = inBRPOP.FindString(list)
		return line != ""
	})
	want := map[string]string{"flags": "b", "name": "", "db": "0", "sub": "0", "psub": "0", "ssub": "0", "multi": "-1", "redir": "-1", "user": "default", "resp": "2"}
	switch verb, arg, _ := strings.Cut(login, " "); verb {
	case "HELLO":
		want["resp"] = arg
	case "SELECT":
		want["db"] = arg
	case "AUTH":
		want["user"], _, _ = strings.Cut(arg, " ")
	}
	for field := range strings.FieldsSeq(line) {
		name, value, _ := strings.Cut(field, "=")
		if w, ok := want[name]; ok && w != value {
			rt.Errorf("%s: %s is %q, not %q", login, name, value, w)
		}
	}
	redis.Do(t, "EVAL", "redis.call('SELECT', ARGV[1]); return redis.call('RPUSH', 'probe', 1)", "0", want["db"])
	if b, err := c.Frame(); err != nil || !strings.Contains(b, "probe") {
		rt.Errorf("%s: BRPOP: %q, %v", login, b, err)
	}
}

// A subscriber whose subscriptions have ended gives its connection back. If Redis keeps a trace of how many there were,
// the next subscriber sees nothing of it.
func TestASubscriberGivesItsConnectionBack(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	channels := strings.Fields("SUBSCRIBE a b c d e f g h i j k l m n o p q r s t u v w x y z")
	b.both(t, func(s *proxytest.Side, proto int) {
		for _, n := range []int{len(channels) - 1, 1, 2, 3, 4, 3, 5, 6, 7, 8, 9, 4, 2, 10} {
			c := s.Speaking("a", proto)
			c.Send(channels[:n+1]...)
			c.Expect(n)
			c.Send("UNSUBSCRIBE")
			c.Expect(n)
			c.Each("PING")
		}
	})
	srv := b.Proxy
	accepted := func() int { return b.Redis.Info(t, "stats", "total_connections_received:") }
	before := accepted()
	for range 20 {
		c := srv.Dial(t)
		for range 20 {
			c.Raw(proxytest.Inline("SUBSCRIBE a b", "PSUBSCRIBE c", "UNSUBSCRIBE", "PUNSUBSCRIBE c"))
			c.Gets("*3", "*3", "*3", "*3", "*3", "*3")
			c.Script("PING", "+PONG")
		}
		_ = c.Conn.Close()
	}
	if n := accepted() - before; n > 50 {
		t.Errorf("400 times a few subscriptions have taken %d connections to Redis", n)
	}
}

// TestFewerPinsAreKeptAfterAChange has three clients with a pin each when max-pins becomes 1: they keep theirs, and the others end with their use.
func TestFewerPinsAreKeptAfterAChange(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 4, proxytest.Patience
	})
	var subscribers []*proxytest.Client
	for range 3 {
		c := srv.Dial(t)
		c.Script("HELLO 3", "%", "SUBSCRIBE c", ">3")
		subscribers = append(subscribers, c)
	}
	srv.Alter(func(o *proxy.Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 1
	})
	late := srv.Dial(t)
	late.Script("SUBSCRIBE c", "-OVERLOADED")
	for _, c := range subscribers {
		c.Script("PING", "+PONG", "UNSUBSCRIBE c", ">3", "GET nothing", "_")
	}
	proxytest.WaitFor(t, "at most one connection to be left", func() bool { return srv.Stats().PinsOpen <= 1 })
	late.Script("SUBSCRIBE c", "*3")
}

// Redis is away when MULTI, or SELECT, comes, and is there again for the commands behind it: they wait with it, or end with
// it.
func TestNothingOfATransactionRunsAloneBehindAnOutage(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c, late, other := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	c.Script("SET k 1", "+OK")
	late.Script("GET k", "$1\r\n1\r\n")
	takeAway(t, srv.Redis, srv)
	c.Raw(proxytest.Inline("MULTI", "SET k 2"))
	late.Raw(proxytest.Inline("SELECT 1", "SET k 2"))
	c.Ends()
	late.Ends()
	c = srv.Dial(t)
	other.Send("GET", "k") // may wait for the restart, or end
	srv.Redis.Restart()
	proxytest.Recovers(t, srv)
	c.Script("GET k", "$-1", "SELECT 1", "+OK", "GET k", "$-1")
}

// takeAway ends Redis, and waits until the proxy knows it of each connection: else a command may be on its way on one of them.
func takeAway(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
	t.Helper()
	redis.Kill()
	proxytest.WaitFor(t, "the proxy to know", func() bool {
		ready, _ := srv.Ready()
		return !ready && srv.Stats().PinsOpen == 0
	})
}
