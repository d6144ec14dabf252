package failover

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Redis goes away: what was sent and not answered ends its client's connection at once, and whoever had state there is
// cut off. What is not sent waits for a while, but not that of a new client. When Redis is back, so is everything else.
func TestRedisIsKilled(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	idle, outstanding, blocked, watching, subscribed, monitoring := srv.Dial(t), srv.Dial(t), srv.Dial(t),
		srv.Dial(t), srv.Dial(t), srv.Dial(t)
	idle.Quiet("SET", "k", "v")
	outstanding.Quiet("GET", "k") // each event loop has its own lane, which is to be there
	watching.Quiet("WATCH", "k")
	subscribed.Quiet("SUBSCRIBE", "ch")
	monitoring.Quiet("MONITOR")
	blocked.Send("BLPOP", "l", "0")
	proxytest.AwaitBlocked(t, 1, srv.Redis)
	srv.Redis.Pause()
	outstanding.Send("GET", "k")
	outstanding.Send("MULTI") // waits for the GET
	proxytest.WaitFor(t, "the GET to be sent", func() bool { return srv.Unanswered() >= 2 })
	srv.Redis.Kill()
	for name, c := range map[string]*proxytest.Client{"outstanding": outstanding, "blocked": blocked, "watching": watching, "subscribed": subscribed} {
		if b, err := c.Frame(); err == nil {
			t.Errorf("the %s client got %q", name, b)
		}
	}
	for { // what was monitored before
		if _, err := monitoring.Frame(); err != nil {
			break
		}
	}
	for _, cmd := range []string{"GET k", "BLPOP l 0", "MULTI", "SUBSCRIBE a", "SELECT 1", "AUTH x y", "HELLO 3", "CLIENT ID", "CLIENT SETNAME x", "CLIENT REPLY ON", "WAIT 0 0", "MONITOR", "NOSUCH", "COMMAND COUNT", "GET k"} {
		srv.Dial(t).Loses(cmd)
	}
	idle.Raw(proxytest.Inline("GET k", "MULTI", "GET k", "EXEC", "SUBSCRIBE a", "PING"))
	idle.Ends()
	srv.Redis.Restart()
	proxytest.Recovers(t, srv)
	idle = srv.Dial(t)
	for _, cmd := range []string{"MULTI", "EXEC", "SUBSCRIBE ch"} {
		if b := idle.Quiet(strings.Fields(cmd)...); b[0] == '-' {
			t.Errorf("%s after the restart: %q", cmd, b)
		}
	}
}

// Restarts in the middle of traffic: no client gets a reply that is not the one to its command, and no write is done twice.
func TestRestartsAmidTraffic(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t, "--appendonly", "yes", "--appendfsync", "no"))
	stop := make(chan struct{})
	var wg sync.WaitGroup
	var served atomic.Int64
	for i := range 16 {
		wg.Go(func() { traffic(t, srv, i, stop, &served) })
	}
	for range 3 {
		before := served.Load()
		proxytest.WaitFor(t, "traffic", func() bool { return served.Load() > before+500 })
		srv.Redis.Kill()
		srv.Redis.Restart()
	}
	before := served.Load()
	proxytest.WaitFor(t, "traffic after the restarts", func() bool { return served.Load() > before+500 })
	close(stop)
	wg.Wait()
}

// traffic counts up a key of its own, one step at a time, and reconnects when it is cut off.
func traffic(t *testing.T, srv *proxytest.Proxy, id int, stop <-chan struct{}, served *atomic.Int64) {
	var c *proxytest.Client
	next, doubts := 1, 0
	for n := 0; ; n++ {
		select {
		case <-stop:
			return
		default:
		}
		if c == nil {
			c = srv.Dial(t)
			c.Side = &proxytest.Side{T: t}
		}
		word := fmt.Sprintf("%d-%d", id, n)
		c.Raw(proxytest.Inline("ECHO "+word, fmt.Sprintf("INCR n%d", id), "MULTI", "ECHO "+word, "EXEC"))
		for i := range 5 {
			b, err := c.Frame()
			if err != nil {
				_ = c.Conn.Close()
				if c = nil; i <= 1 {
					doubts++ // the INCR before may be in doubt, too
				}
				break
			}
			bulk := fmt.Sprintf("$%d\r\n%s\r\n", len(word), word)
			if strings.HasPrefix(b, "-LOADING ") || strings.HasPrefix(b, "-ERR EXEC without MULTI") {
				continue
			}
			switch i {
			case 0:
				if b != bulk {
					t.Errorf("ECHO %s: %q", word, b)
				}
			case 1:
				got := proxytest.Integer(t, b)
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
	core, logs := observer.New(zap.DebugLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
	count := func(message string) int { return logs.FilterMessage(message).Len() }
	c := srv.Dial(t)
	for i := range 5 {
		c.Quiet("SET", "k", fmt.Sprint(i))
		c.Quiet("SELECT", "0") // and a pin in the pool
		proxytest.WaitFor(t, "all lanes to be connected", func() bool {
			return count("lane connected") == count("lane lost its connection")+srv.Stats().Lanes
		})
		lost := count("lane lost its connection") + srv.Stats().Lanes
		redis.Do(t, "CLIENT", "KILL", "TYPE", "normal")
		proxytest.WaitFor(t, "the proxy to know", func() bool { return count("lane lost its connection") == lost })
		proxytest.WaitFor(t, "the client to be served", func() bool { return c.Quiet("GET", "k") == fmt.Sprintf("$1\r\n%d\r\n", i) })
		proxytest.WaitFor(t, "the client to get a pin", func() bool { return c.Quiet("SELECT", "0") == "+OK\r\n" })
	}
}

// A Redis that has too many clients says so to those who need a new connection, is not stormed, and is used again when it
// has room.
func TestRedisHasTooManyClients(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	c := srv.Dial(t)
	c.Quiet("PING")
	admin.Each("CONFIG SET maxclients 1", "CLIENT KILL TYPE normal")
	proxytest.WaitFor(t, "the refusal", func() bool {
		c.Send("GET", "k")
		b, err := c.Frame()
		if err != nil { // it was on its way when the connection ended
			c = srv.Dial(t)
		}
		return b == crowded
	})
	var late *proxytest.Client
	proxytest.WaitFor(t, "the refusal of a transaction", func() bool { // a new client may be closed before Redis is asked
		late = srv.Dial(t)
		late.Send("MULTI")
		b, err := late.Frame()
		return err == nil && b == crowded
	})
	late.Ends() // the commands behind it would run one by one
	if info := srv.Anew(t, "INFO lockproxy"); !strings.Contains(info, "upstream_error:upstream refused the connection: ERR max number of clients") {
		t.Errorf("INFO lockproxy: %q", info)
	}
	rejected := func() string {
		_, after, _ := strings.Cut(admin.Quiet("INFO", "stats"), "rejected_connections:")
		return after[:strings.IndexByte(after, '\r')]
	}
	before, start := rejected(), time.Now()
	for time.Since(start) < 500*time.Millisecond {
		c.Quiet("GET", "k")
	}
	n := proxytest.Integer(t, ":"+rejected()+"\r\n") - proxytest.Integer(t, ":"+before+"\r\n")
	if took := time.Since(start); float64(n) > 40*took.Seconds() { // the machine may stand still, for any time
		t.Errorf("%d attempts to connect within %v", n, took)
	}
	admin.Quiet("CONFIG", "SET", "maxclients", "1000")
	proxytest.Recovers(t, srv)
}

const crowded = "-ERR max number of clients reached\r\n"

// While Redis loads its data it says so, as after a restart. Clients are told what it says, and a client that waits for a
// lock waits on.
func TestRedisLoadsItsData(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t, "--enable-debug-command", "yes"))
	c, holder, other := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	c.Quiet("DEBUG", "POPULATE", "100000")
	holder.Script("LOCK k PX 500", ":", "LOCK fair PX 500", ":")
	var waiters []*proxytest.Client
	for n, line := range []string{"LOCK k", "FAIRLOCK fair", "LOCK k WAIT 1000", "FAIRLOCK fair WAIT 1000"} {
		w := srv.Dial(t)
		w.Send(strings.Fields(line)...)
		waiters = append(waiters, w)
		proxytest.WaitFor(t, "a wait", func() bool { return srv.Stats().Waiting == n+1 })
	}
	c.Quiet("CONFIG", "SET", "key-load-delay", "100", "loading-process-events-interval-bytes", "1024") // µs for each key
	c.Send("DEBUG", "RELOAD")
	proxytest.WaitFor(t, "-LOADING", func() bool { return strings.HasPrefix(other.Quiet("GET", "key:1"), "-LOADING ") })
	if b := other.Quiet("WATCH", "k"); !strings.HasPrefix(b, "+OK") && !strings.HasPrefix(b, "-LOADING ") {
		t.Errorf("WATCH while loading: %q", b)
	}
	waiters[2].Gets("$-1") // the lease has ended meanwhile, and they have asked
	waiters[3].Gets("$-1")
	if b := srv.Dial(t).Quiet("GET", "key:1"); !strings.HasPrefix(b, "-LOADING ") {
		t.Skipf("Redis has loaded its data already: %q", b) // the machine stood still
	}
	srv.Redis.Do(t, "CONFIG", "SET", "key-load-delay", "0")
	c.Gets("+OK")
	waiters[0].Gets(":")
	waiters[1].Gets(":")
	other.Script("GET key:1", "$7\r\nvalue:1\r\n")
}

// A Redis that closes connections is there: what has not been sent waits for the next one.
func TestLaneThatIsKilledAgainAndAgainIsNoOutage(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	admin := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	var c *proxytest.Client
	refused := 0
	for range 30 {
		if c == nil {
			c = srv.Dial(t)
			c.Side = &proxytest.Side{T: t}
		}
		admin.Quiet("CLIENT", "KILL", "TYPE", "normal")
		c.Send("GET", "k")
		b, err := c.Frame()
		if err != nil { // it was sent on the connection that was killed
			c = nil
		} else if b[0] == '-' {
			refused++
		}
	}
	if refused > 2 { // a machine that stands still may cost one
		t.Errorf("%d of 30 commands were refused", refused)
	}
}

// Whatever the back-off of each, all identities are served again as soon as Redis is back.
func TestAllIdentitiesAreBackSoonAfterRedis(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	beside := redistest.Start(t) // it stays
	proxytest.InTime(t, "the first answer of an identity when Redis is back,", 600*time.Millisecond, func() (longest time.Duration) {
		var clients []*proxytest.Client
		for db := range 8 {
			c := srv.Dial(t)
			c.Each("SELECT "+fmt.Sprint(db), "GET k")
			clients = append(clients, c)
		}
		still := proxytest.Standstill(t, beside)
		srv.Redis.Kill()
		proxytest.WaitFor(t, "the proxy to know", func() bool {
			ready, _ := srv.Ready()
			return !ready
		})
		for _, c := range clients {
			c.Send("GET", "k")
		}
		srv.Redis.Restart()
		back := time.Now()
		for _, c := range clients {
			c.Gets("$-1")
			_ = c.Conn.Close()
		}
		return time.Since(back) - still()
	})
}
