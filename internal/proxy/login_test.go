package proxy

import (
	"fmt"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// onEngines runs a test with a proxy of each engine in front of one Redis.
func onEngines(t *testing.T, redis *redistest.Server, test func(t *testing.T, srv *Server), change ...func(*Options)) {
	t.Helper()
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			test(t, startProxy(t, redis, append(change, func(o *Options) { o.Engine = engine })...))
		})
	}
}

// Clients that say HELLO, AUTH or SELECT all at once are answered as by Redis itself, by few connections.
func TestManyClientsLogInAtOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	const clients = 1200
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		before := accepted(t, redis)
		peers := make([]*peer, clients)
		for i := range peers {
			peers[i] = dialClient(t, address(srv))
		}
		logins := []string{"HELLO 3", "HELLO 3 AUTH app pw SETNAME me", "AUTH app pw", "SELECT 3"}
		wants := []string{"%7\r\n$6\r\nserver", "%7\r\n$6\r\nserver", "+OK", "+OK"}
		for i, c := range peers {
			c.raw(inline(logins[i%4], "PING"))
		}
		for i, c := range peers {
			c.expectReply(wants[i%4])
			c.expectReply("+PONG")
		}
		limit := 300
		if !answersRefusals(t, redis) {
			limit += clients / 2 // Redis judges each AUTH on a connection of its own
		}
		if n := accepted(t, redis) - before; n > limit {
			t.Errorf("%d clients took %d connections to Redis", clients, n)
		}
	})
}

// accepted is how many connections Redis has had.
func accepted(t *testing.T, redis *redistest.Server) int {
	t.Helper()
	return redis.Info(t, "stats", "total_connections_received:")
}

// The reply to HELLO on a shared lane is Redis's own but for the id.
func TestHelloOnALaneIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	b.redis.Do(t, "ACL", "SETUSER", "poor", "on", ">pw", "~*", "&*", "+@all", "-select")
	b.compare(t, func(s *side) {
		s.hideHelloID()
		for _, resident := range []string{"HELLO 2", "HELLO 3", "HELLO 3 AUTH app pw", "AUTH app pw", "SELECT 5", "HELLO 3 AUTH poor pw"} {
			c := s.client("resident")
			c.raw(inline(resident, "PING"))
			c.expect(2) // now there is a lane
		}
		for _, login := range []string{
			"HELLO", "HELLO 2", "HELLO 3", "HELLO 3 SETNAME me", "HELLO 3 AUTH app pw SETNAME setname", "HELLO 3 SETNAME me AUTH app pw", "AUTH app pw", "AUTH app wrong", "HELLO 3 AUTH app wrong",
			"SELECT 5", "SELECT 05", "SELECT 99", "SELECT -1", "SELECT x", "HELLO 3 AUTH poor pw\r\nSELECT 5", "HELLO 3 AUTH app pw\r\nSELECT 5\r\nHELLO 2", "CLIENT REPLY SKIP\r\nHELLO 3\r\nPING",
			"SELECT 5\r\nSELECT 5\r\nSET k v\r\nSELECT 0\r\nGET k", "MULTI\r\nHELLO 3\r\nSELECT 5\r\nEXEC", "WATCH k\r\nSELECT 5\r\nGET k",
		} {
			c := s.client(login)
			c.raw(inline(login, "CLIENT GETNAME", "ACL WHOAMI", "GET nosuch", "ECHO the-end"))
			c.until("the-end")
		}
	})
}

// Logins have connections of their own: nobody who works, or only says so, keeps others from logging in.
func TestLoginsDoNotCompeteWithWork(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "app", "on", ">pw", "~*", "&*", "+@all")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		for range 2 {
			worker := dialClient(t, address(srv))
			worker.send("BLPOP", "l", "0")
		}
		redistest.Eventually(t, patience, "all pins to be taken", func() bool { return srv.Stats().PinReasons["blpop"] == 2 })
		large := dialClient(t, address(srv)) // it finds no pin
		large.raw("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$50000000\r\n")
		large.expectReply("+PONG")
		c := dialClient(t, address(srv))
		for _, login := range []string{"HELLO 3", "AUTH app pw", "SELECT 2", "HELLO 2 AUTH app pw", "SELECT 7"} {
			c.raw(inline(login))
			if got, err := c.frame(); err != nil || strings.HasPrefix(got, "-") {
				t.Errorf("%s: %q %v", login, got, err)
			}
		}
	}, func(o *Options) {
		o.Upstream.Pins.Max, o.Upstream.Pins.MaxPerOwner, o.Upstream.Pins.Wait = 2, 2, 50*time.Millisecond
	})
}

// The clients of one address get no more than their share of the pins.
func TestNoAddressTakesAllPins(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		for range 3 {
			dialClient(t, address(srv)).send("BLPOP", "l", "0")
		}
		redistest.Eventually(t, patience, "the share to be taken", func() bool { return srv.Stats().PinReasons["blpop"] == 3 })
		greedy := dialClient(t, address(srv))
		greedy.send("BLPOP", "l", "0")
		greedy.expectReply("-OVERLOADED the clients of this address have all upstream connections that one address may have (max-pins-per-address)")
		other := dialFrom(t, "127.0.0.2", address(srv))
		other.send("MULTI")
		other.expectReply("+OK")
		last := dialFrom(t, "127.0.0.3", address(srv))
		last.send("MULTI")
		last.expectReply("-OVERLOADED no upstream connection is free (max-pins)")
	}, func(o *Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 4, 50*time.Millisecond })
}

// dialFrom connects a client from another address.
func dialFrom(t *testing.T, from, addr string) *peer {
	t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	nc, err := d.Dial("tcp", addr)
	if err != nil {
		t.Skipf("this system has no address %s: %v", from, err)
	}
	t.Cleanup(func() { _ = nc.Close() })
	return &peer{t: t, nc: nc}
}

// One address that tries passwords without end does not keep another from logging in.
func TestWrongPasswordsDoNotHoldUpLogins(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--requirepass", "secret")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		var wg sync.WaitGroup
		defer wg.Wait()
		stop := make(chan struct{})
		defer close(stop)
		for i := range 64 {
			c := dialClient(t, address(srv))
			wg.Go(func() {
				for n := 0; ; n++ {
					select {
					case <-stop:
						return
					default:
					}
					c.send("AUTH", "default", fmt.Sprintf("wrong-%d-%d", i, n))
					if got, err := c.frame(); err != nil || !strings.HasPrefix(got, "-WRONGPASS") {
						t.Errorf("a wrong password: %q %v", got, err)
						return
					}
				}
			})
		}
		for range 20 {
			c := dialFrom(t, "127.0.0.2", address(srv))
			c.send("HELLO", "3", "AUTH", "default", "secret")
			c.expectReply("%")
			_ = c.nc.Close()
		}
		if work, logins := srv.shared.Upstream.Pins(); logins.Open > 4 {
			t.Errorf("%+v and %+v connections, of which 4 may be for logins", work, logins)
		}
		if n := len(srv.shared.Upstream.Lanes()); n > 2 {
			t.Errorf("%d lanes", n)
		}
	}, func(o *Options) { o.Upstream.Pins.MaxLogins = 4 })
}

// A client that goes away while Redis judges its command on another's lane leaves that lane as it was.
func TestVisitorThatGoesAway(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		resident, visitor := dialClient(t, address(srv)), dialClient(t, address(srv))
		resident.raw(inline("SELECT 4", "PING"))
		resident.expect(2)
		redis.Pause()
		visitor.send("SELECT", "4")
		redistest.Eventually(t, patience, "the visit", func() bool {
			s := srv.sessionOf(visitor)
			return s != nil && s.Status().State == "reply"
		})
		if err := visitor.nc.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		_ = visitor.nc.Close()
		redistest.Eventually(t, patience, "the session to end", func() bool { return srv.sessionOf(visitor) == nil })
		redis.Continue()
		redistest.Eventually(t, patience, "the visitor to have left the lane", func() bool {
			for _, l := range srv.shared.Upstream.Lanes() {
				if (l.Identity == upstream.Identity{DB: 4, Proto: 2}) && l.Users == 1 {
					return true
				}
			}
			return false
		})
		resident.send("PING")
		resident.expectReply("+PONG")
	})
}

// A client that announces a large command and does not send it loses its pin; one that sends it slowly, but sends it, does not.
func TestLargeCommandsMustComeAlong(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	const size, step, limit = 6 << 20, 1 << 20, 3 * time.Second // a busy machine may stand still for a while
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		steady := dialClient(t, address(srv))
		head := fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size)
		steady.raw("PING\r\n" + head)
		steady.expectReply("+PONG")
		var silent, drips []*peer
		for range 3 {
			silent, drips = append(silent, dialClient(t, address(srv))), append(drips, dialClient(t, address(srv)))
		}
		for _, c := range append(silent, drips...) {
			c.raw("PING\r\n" + head)
			c.expectReply("+PONG")
		}
		redistest.Eventually(t, patience, "the pins to be taken", func() bool { return srv.Stats().PinReasons["set (large)"] == 7 })
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
						_, _ = c.nc.Write([]byte("x"))
					}
				}
			})
		}
		part := strings.Repeat("v", step)
		for sent := 0; sent < size; sent += step { // for longer than the limit
			steady.raw(part)
			want := began.Add(limit * time.Duration(sent/step+1) / 4)
			<-time.After(time.Until(want))
		}
		steady.raw("\r\n")
		steady.expectReply("+OK")
		redistest.Eventually(t, patience, "the others to be closed", func() bool {
			return srv.Stats().Closed["slow_command"] == 6 && len(srv.Stats().PinReasons) == 0
		})
		close(stop)
		wg.Wait()
	}, func(o *Options) { o.Limits.LargeCommand = limit })
}

// A user who may not SELECT stays in the database that was selected before its login, as on a direct connection.
func TestAUserWhoMayNotSelectStaysInItsDatabase(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.redis.Do(t, "ACL", "SETUSER", "poor", "on", ">pw", ">pw2", "~*", "&*", "+@all", "-select")
	b.compare(t, func(s *side) {
		s.hideHelloID()
		all := [][]string{
			{"SELECT 3", "AUTH poor pw", "SET k 3", "GET k"},
			{"SELECT 3", "HELLO 3 AUTH poor pw", "SET k 3", "GET k"},
			{"SELECT 3", "AUTH poor pw2", "SET k 3", "GET k"},
			{"SELECT 3", "WATCH k", "AUTH poor pw2", "SET k 3", "GET k"},
			{"SELECT 3", "HELLO 3 AUTH poor pw BAD", "GET k"},
			{"SELECT 3", "HELLO 3 SETNAME x AUTH poor pw", "GET k", "CLIENT GETNAME"},
			{"SELECT 3", "AUTH poor pw", "HELLO 3", "GET k", "BLPOP l 0.01", "MULTI", "GET k", "EXEC", "SUBSCRIBE c"},
			{"SELECT 3", "AUTH poor pw", "AUTH poor pw2", "GET k", "SELECT 3", "RESET", "GET k"},
		}
		if answersRefusals(t, b.redis) {
			all = append(all, []string{"SELECT 3", "MULTI", "AUTH poor pw", "SET k 4", "EXEC", "GET k"},
				[]string{"MULTI", "SELECT 3", "AUTH poor pw", "SET k 4", "EXEC", "GET k"},
				[]string{"MULTI", "AUTH poor pw", "SELECT 3", "SET k 4", "EXEC", "GET k"})
		}
		for _, lines := range all {
			c := s.client("c")
			c.raw(inline(lines...) + inline("ECHO the-end"))
			c.until("the-end")
			c = s.client("c")
			for _, l := range lines {
				c.raw(inline(l))
				f, err := c.frame()
				c.note(f, err)
			}
		}
	})
}
