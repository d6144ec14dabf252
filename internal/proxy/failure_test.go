package proxy

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

const unreachable = "-NOUPSTREAM upstream is not reachable, nothing was sent\r\n"

// recovers waits until a command of a new client is served.
func recovers(t *testing.T, srv *Server) {
	t.Helper()
	redistest.Eventually(t, patience, "the proxy to serve again", func() bool {
		c := dialClient(t, address(srv))
		defer c.nc.Close()
		c.side = &side{t: t}
		c.send("PING")
		b, _ := c.frame()
		return b == "+PONG\r\n"
	})
}

// Redis goes away: what was sent and not answered ends its client's connection, what is not sent is refused in words, and
// whoever had state there is cut off. When it is back, so is everything else.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		idle, outstanding, blocked, watching, subscribed, monitoring := dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv)),
			dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))
		idle.quiet("SET", "k", "v")
		outstanding.quiet("GET", "k") // each event loop has its own lane, which is to be there
		watching.quiet("WATCH", "k")
		subscribed.quiet("SUBSCRIBE", "ch")
		monitoring.quiet("MONITOR")
		blocked.send("BLPOP", "l", "0")
		(&side{t: t, redis: redis}).awaitBlocked(1)
		redis.Pause()
		outstanding.send("GET", "k")
		outstanding.send("MULTI") // waits for the GET
		waitFor(t, "the GET to be sent", func() bool { return pendingOf(srv) >= 2 })
		redis.Kill()
		for name, c := range map[string]*peer{"outstanding": outstanding, "blocked": blocked, "watching": watching, "subscribed": subscribed} {
			if b, err := c.frame(); err == nil {
				t.Errorf("the %s client got %q", name, b)
			}
		}
		for { // what was monitored before
			if _, err := monitoring.frame(); err != nil {
				break
			}
		}
		for _, cmd := range []string{"GET k", "BLPOP l 0", "MULTI", "SUBSCRIBE a", "SELECT 1", "AUTH x y", "HELLO 3", "CLIENT ID", "CLIENT SETNAME x", "CLIENT REPLY ON", "WAIT 0 0", "MONITOR", "NOSUCH", "COMMAND COUNT", "GET k"} {
			waitFor(t, "the refusal of "+cmd, func() bool { return strings.HasPrefix(idle.quiet(strings.Fields(cmd)...), "-NOUPSTREAM ") })
		}
		idle.raw(inline("GET k", "MULTI", "GET k", "EXEC", "SUBSCRIBE a", "PING"))
		for i := range 6 {
			if b, err := idle.frame(); b != unreachable {
				t.Errorf("pipelined reply %d is %q, %v", i, b, err)
			}
		}
		if b := idle.quiet("RESET"); b != "+RESET\r\n" {
			t.Errorf("RESET: %q", b)
		}
		redis.Restart()
		waitFor(t, "the idle client to be served again", func() bool { return idle.quiet("SET", "k", "again") == "+OK\r\n" })
		for _, cmd := range []string{"MULTI", "EXEC", "SUBSCRIBE ch"} {
			if b := idle.quiet(strings.Fields(cmd)...); b[0] == '-' {
				t.Errorf("%s after the restart: %q", cmd, b)
			}
		}
	})
}

func waitFor(t *testing.T, claim string, holds func() bool) {
	t.Helper()
	redistest.Eventually(t, patience, claim, holds)
}

// pendingOf is how many commands of all clients are unanswered.
func pendingOf(srv *Server) int {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	n := 0
	for _, s := range srv.conns {
		n += s.Status().Unanswered
	}
	return n
}

// Restarts in the middle of traffic: no client gets a reply that is not the one to its command, and no write is done twice.
func TestRestartsAmidTraffic(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		stop := make(chan struct{})
		var wg sync.WaitGroup
		var served atomic.Int64
		for i := range 16 {
			wg.Go(func() { traffic(t, srv, i, stop, &served) })
		}
		for range 3 {
			before := served.Load()
			waitFor(t, "traffic", func() bool { return served.Load() > before+500 })
			redis.Kill()
			redis.Restart()
		}
		before := served.Load()
		waitFor(t, "traffic after the restarts", func() bool { return served.Load() > before+500 })
		close(stop)
		wg.Wait()
	}, "--appendonly", "yes", "--appendfsync", "no")
}

// traffic counts up a key of its own, one step at a time, and reconnects when it is cut off.
func traffic(t *testing.T, srv *Server, id int, stop <-chan struct{}, served *atomic.Int64) {
	var c *peer
	next, doubts := 1, 0
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if c == nil {
			c = dialClient(t, address(srv))
			c.side = &side{t: t}
		}
		word := fmt.Sprintf("%d-%d", id, n)
		c.raw(inline("ECHO "+word, fmt.Sprintf("INCR n%d", id), "MULTI", "ECHO "+word, "EXEC"))
		for i := range 5 {
			b, err := c.frame()
			if err != nil {
				_ = c.nc.Close()
				if c = nil; i <= 1 {
					doubts++ // the INCR before may be in doubt, too
				}
				break
			}
			bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
			if strings.HasPrefix(b, "-NOUPSTREAM ") || strings.HasPrefix(b, "-LOADING ") || strings.HasPrefix(b, "-ERR EXEC without MULTI") {
				continue
			}
			switch i {
			case 0:
				if b != bulk {
					t.Errorf("ECHO %s: %q", word, b)
				}
			case 1:
				got := integer(t, b)
				if got < next || got > next+doubts {
					t.Errorf("client %d counted to %d after %d (in doubt: %d)", id, got, next-1, doubts)
				}
				next, doubts = got+1, 0
				served.Add(1)
			case 4:
				if b != "*1\r\n"+bulk {
					t.Errorf("EXEC %s: %q", word, b)
				}
			}
		}
	}
}

// Redis closes the lane and a pin: a client with nothing outstanding does not notice, unless it sends before the proxy knows.
func TestClosedLaneIsReplacedAtOnce(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Logger = engine, zap.New(core) })
			count := func(message string) int { return logs.FilterMessage(message).Len() }
			c := dialClient(t, address(srv))
			for i := range 5 {
				c.quiet("SET", "k", fmt.Sprint(i))
				c.quiet("SELECT", "0") // and a pin in the pool
				waitFor(t, "all lanes to be connected", func() bool {
					return count("lane connected") == count("lane lost its connection")+len(srv.shared.Upstream.Lanes())
				})
				lost := count("lane lost its connection") + len(srv.shared.Upstream.Lanes())
				redis.Do(t, "CLIENT", "KILL", "TYPE", "normal")
				waitFor(t, "the proxy to know", func() bool { return count("lane lost its connection") == lost })
				waitFor(t, "the client to be served", func() bool { return c.quiet("GET", "k") == fmt.Sprintf("$1\r\n%d\r\n", i) })
				waitFor(t, "the client to get a pin", func() bool { return c.quiet("SELECT", "0") == "+OK\r\n" })
			}
		})
	}
}

// A Redis that has too many clients is reported as unreachable, is not stormed, and is used again when it has room.
func TestRedisHasTooManyClients(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		admin := dialClient(t, "unix:"+redis.Socket())
		c := dialClient(t, address(srv))
		c.quiet("PING")
		admin.quiet("CONFIG", "SET", "maxclients", "1")
		admin.quiet("CLIENT", "KILL", "TYPE", "normal")
		waitFor(t, "the refusal", func() bool {
			c.send("GET", "k")
			b, err := c.frame()
			if err != nil { // it was on its way when the connection ended
				c = dialClient(t, address(srv))
			}
			return b == unreachable
		})
		if b := c.quiet("MULTI"); b != unreachable {
			t.Errorf("MULTI: %q", b)
		}
		rejected := func() string {
			_, after, _ := strings.Cut(admin.quiet("INFO", "stats"), "rejected_connections:")
			return after[:strings.IndexByte(after, '\r')]
		}
		before, start := rejected(), time.Now()
		for time.Since(start) < 500*time.Millisecond {
			c.quiet("GET", "k")
		}
		n := integer(t, ":"+rejected()+"\r\n") - integer(t, ":"+before+"\r\n")
		if took := time.Since(start); float64(n) > 40*took.Seconds() { // the machine may stand still, for any time
			t.Errorf("%d attempts to connect within %v", n, took)
		}
		admin.quiet("CONFIG", "SET", "maxclients", "1000")
		recovers(t, srv)
	})
}

// While Redis loads its data it says so, and clients are told what it says.
func TestLoadingPassesThrough(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		c.quiet("DEBUG", "POPULATE", "100000")
		c.quiet("CONFIG", "SET", "key-load-delay", "100", "loading-process-events-interval-bytes", "1024") // µs for each key
		c.send("DEBUG", "RELOAD")
		other := dialClient(t, address(srv))
		waitFor(t, "-LOADING", func() bool { return strings.HasPrefix(other.quiet("GET", "key:1"), "-LOADING ") })
		if b := other.quiet("WATCH", "k"); !strings.HasPrefix(b, "+OK") && !strings.HasPrefix(b, "-LOADING ") {
			t.Errorf("WATCH while loading: %q", b)
		}
		redis.Do(t, "CONFIG", "SET", "key-load-delay", "0")
		if b, err := c.frame(); b != "+OK\r\n" {
			t.Errorf("DEBUG RELOAD: %q, %v", b, err)
		}
		waitFor(t, "the end of loading", func() bool { return other.quiet("GET", "key:1") == "$7\r\nvalue:1\r\n" })
	}, "--enable-debug-command", "yes")
}

// A Redis that closes connections is there: what has not been sent waits for the next one.
func TestLaneThatIsKilledAgainAndAgainIsNoOutage(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		admin := dialClient(t, "unix:"+redis.Socket())
		var c *peer
		refused := 0
		for range 30 {
			if c == nil {
				c = dialClient(t, address(srv))
				c.side = &side{t: t}
			}
			admin.quiet("CLIENT", "KILL", "TYPE", "normal")
			c.send("GET", "k")
			b, err := c.frame()
			if err != nil { // it was sent on the connection that was killed
				c = nil
			} else if b[0] == '-' {
				refused++
			}
		}
		if refused > 2 { // a machine that stands still may cost one
			t.Errorf("%d of 30 commands were refused", refused)
		}
	})
}

// Whatever the back-off of each, all identities are served again as soon as Redis is back.
func TestAllIdentitiesAreBackSoonAfterRedis(t *testing.T) {
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		beside := redistest.Start(t) // it stays
		inTime(t, "a refusal while Redis is away, or the first answer of an identity when it is back,", 600*time.Millisecond, func() (longest time.Duration) {
			var clients []*peer
			for db := range 8 {
				c := dialClient(t, address(srv))
				c.quiet("SELECT", fmt.Sprint(db))
				c.quiet("GET", "k")
				c.side = &side{t: t}
				clients = append(clients, c)
			}
			still := standstill(t, beside)
			redis.Kill()
			for away := time.Now(); time.Since(away) < time.Second; {
				for i, c := range clients {
					asked := time.Now()
					c.send("GET", "k")
					b, err := c.frame()
					if err != nil { // sent before the end was noticed
						clients = slices.Delete(clients, i, i+1)
						break
					}
					if b != unreachable {
						t.Fatalf("while Redis is away: %q", b)
					}
					longest = max(longest, time.Since(asked))
				}
			}
			if len(clients) == 0 {
				t.Skip("all have noticed too late that Redis is away")
			}
			redis.Restart()
			back := time.Now()
			for _, c := range clients {
				waitFor(t, "an answer", func() bool { return c.quiet("GET", "k") == "$-1\r\n" })
				_ = c.nc.Close()
			}
			return max(longest, time.Since(back)) - still()
		})
	})
}
