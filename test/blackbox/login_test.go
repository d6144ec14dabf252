package blackbox

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Clients that say HELLO, AUTH or SELECT all at once are answered as by Redis itself, by few connections.
func TestManyClientsLogInAtOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	const clients = 1200
	srv := proxytest.Start(t, redis)
	before := accepted(t, redis)
	peers := make([]*proxytest.Client, clients)
	for i := range peers {
		peers[i] = srv.Dial(t)
	}
	logins := []string{"HELLO 3", "HELLO 3 AUTH app pw SETNAME me", "AUTH app pw", "SELECT 3"}
	wants := []string{"%7\r\n$6\r\nserver", "%7\r\n$6\r\nserver", "+OK", "+OK"}
	for i, c := range peers {
		c.Raw(proxytest.Inline(logins[i%4], "PING"))
	}
	for i, c := range peers {
		c.Gets(wants[i%4], "+PONG")
	}
	const limit = 300 + clients/2 // Redis judges each login on a connection of its own
	if n := accepted(t, redis) - before; n > limit {
		t.Errorf("%d clients took %d connections to Redis", clients, n)
	}
}

// accepted is how many connections Redis has had.
func accepted(t *testing.T, redis *redistest.Server) int {
	t.Helper()
	return redis.Info(t, "stats", "total_connections_received:")
}

// Logins have connections of their own: nobody who works, or only says so, keeps others from logging in.
func TestLoginsDoNotCompeteWithWork(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 2, 50*time.Millisecond
	})
	for range 2 {
		worker := srv.Dial(t)
		worker.Send("BLPOP", "l", "0")
	}
	proxytest.WaitFor(t, "all pins to be taken", func() bool { return srv.Stats().PinReasons["blpop"] == 2 })
	large := srv.Dial(t) // it finds no pin
	large.Raw("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n")
	large.Gets("+PONG")
	c := srv.Dial(t)
	for _, login := range []string{"HELLO 3", "AUTH app pw", "SELECT 2", "HELLO 2 AUTH app pw", "SELECT 7"} {
		c.Raw(proxytest.Inline(login))
		if got, err := c.Frame(); err != nil || strings.HasPrefix(got, "-") {
			t.Errorf("%s: %q %v", login, got, err)
		}
	}
}

// The clients of one address get no more than their share of the pins.
func TestNoAddressTakesAllPins(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 4, 50*time.Millisecond })
	for range 3 {
		srv.Dial(t).Send("BLPOP", "l", "0")
	}
	proxytest.WaitFor(t, "the share to be taken", func() bool { return srv.Stats().PinReasons["blpop"] == 3 })
	greedy := srv.Dial(t)
	greedy.Send("BLPOP", "l", "0")
	greedy.Gets("-OVERLOADED the clients of this address have all upstream connections that one address may have (max-pins)")
	other := proxytest.DialFrom(t, "127.0.0.2", srv.Addr())
	other.Script("MULTI", "+OK")
	last := proxytest.DialFrom(t, "127.0.0.3", srv.Addr())
	last.Script("MULTI", "-OVERLOADED no upstream connection is free (max-pins)")
}

// One address that tries passwords without end does not keep another from logging in.
func TestWrongPasswordsDoNotHoldUpLogins(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Pins.MaxLogins = 4 })
	var guesses proxytest.Meanwhile
	defer guesses.End()
	for i := range 64 {
		c := srv.Dial(t)
		guesses.Go(func(n int) bool {
			c.Send("AUTH", "default", fmt.Sprintf("wrong-%d-%d", i, n))
			got, err := c.Frame()
			if err != nil || !strings.HasPrefix(got, "-WRONGPASS") {
				t.Errorf("a wrong password: %q %v", got, err)
				return false
			}
			return true
		})
	}
	for range 20 {
		c := proxytest.DialFrom(t, "127.0.0.2", srv.Addr())
		c.Script("HELLO 3 AUTH default secret", "%")
		_ = c.Conn.Close()
	}
	if work, logins := srv.Shared().Upstream.Pins.Status(); logins.Open > 4 {
		t.Errorf("%+v and %+v connections, of which 4 may be for logins", work, logins)
	}
	if n := srv.Stats().Lanes; n > 2 {
		t.Errorf("%d lanes", n)
	}
}

// A client that goes away while Redis judges its command on another's lane leaves that lane as it was.
func TestVisitorThatGoesAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	resident, visitor := srv.Dial(t), srv.Dial(t)
	resident.Together("SELECT 4", "PING")
	redis.Pause()
	visitor.Send("SELECT", "4")
	proxytest.WaitFor(t, "the visit", func() bool {
		s := srv.StatusOf(visitor)
		return s != nil && s.State == "reply"
	})
	if err := visitor.Socket().SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = visitor.Conn.Close()
	proxytest.WaitFor(t, "the session to end", func() bool { return srv.StatusOf(visitor) == nil })
	redis.Continue()
	proxytest.WaitFor(t, "the visitor to have left the lane", func() bool {
		for _, l := range srv.Shared().Upstream.Lanes.List() {
			if (l.Identity == upstream.Identity{DB: 4, Proto: 2}) && l.Users == 1 {
				return true
			}
		}
		return false
	})
	resident.Script("PING", "+PONG")
}

// A client that announces a large command and does not send it loses its pin; one that sends it slowly, but sends it, does not.
func TestLargeCommandsMustComeAlong(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const size, step, limit = 6 << 20, 1 << 20, 3 * time.Second // a busy machine may stand still for a while
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.LargeCommand = limit })
	steady := srv.Dial(t)
	head := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size)
	steady.Raw("PING\r\n" + head)
	steady.Gets("+PONG")
	var silent, drips []*proxytest.Client
	for range 3 {
		silent, drips = append(silent, srv.Dial(t)), append(drips, srv.Dial(t))
	}
	for _, c := range append(silent, drips...) {
		c.Raw("PING\r\n" + head)
		c.Gets("+PONG")
	}
	proxytest.WaitFor(t, "the pins to be taken", func() bool { return srv.Stats().PinReasons["set (large)"] == 7 })
	began := time.Now()
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for _, c := range drips {
		wg.Go(func() {
			for ticks := time.NewTicker(limit / 20); ; {
				select {
				case <-stop:
					return
				case <-ticks.C:
					_, _ = c.Conn.Write([]byte("x"))
				}
			}
		})
	}
	part := strings.Repeat("v", step)
	for sent := 0; sent < size; sent += step { // for longer than the limit
		steady.Raw(part)
		want := began.Add(limit * time.Duration(sent/step+1) / 4)
		<-time.After(time.Until(want))
	}
	steady.Raw("\r\n")
	steady.Gets("+OK")
	proxytest.WaitFor(t, "the others to be closed", func() bool {
		return srv.Stats().Closed["slow_command"] == 6 && len(srv.Stats().PinReasons) == 0
	})
	close(stop)
	wg.Wait()
}
