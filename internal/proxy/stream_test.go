package proxy

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// large is a value that is streamed: larger than what the proxies of these tests may hold of a client's requests.
func large() string {
	b := make([]byte, 32<<20)
	r := rand.NewChaCha8([32]byte{1})
	_, _ = r.Read(b) // it never fails
	return string(b)
}

func TestLargeCommandPassesWithoutBeingHeld(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	value := large()
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			srv := startProxy(t, redis, func(o *Options) {
				o.Engine = engine
				o.Limits.Query = 8 << 20
			})
			c, other := dialClient(t, address(srv)), dialClient(t, address(srv))
			// Around it, commands that travel on the lane: their order must hold.
			c.raw(fmt.Sprintf("*1\r\n$4\r\nPING\r\n*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", len(value)))
			c.raw(value[:20<<20])
			if got := other.do("PING"); got != "+PONG\r\n" {
				t.Errorf("another client's PING in the middle of it = %q", got)
			}
			c.raw(value[20<<20:] + "\r\n*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n")
			for _, want := range []string{"+PONG\r\n", "+OK\r\n", fmt.Sprintf(":%d\r\n", len(value))} {
				if got, err := c.frame(); got != want || err != nil {
					t.Fatalf("reply %q, %v, want %q", got, err, want)
				}
			}
			direct := dialClient(t, redis.Addr())
			for name, from := range map[string]*peer{"direct": direct, "through the proxy": c} {
				from.send("GET", "k")
				_ = from.nc.SetReadDeadline(time.Now().Add(time.Minute)) // that of a single frame is shorter
				sum := sha256.New()
				head := fmt.Sprintf("$%d\r\n", len(value))
				if _, err := io.CopyN(sum, from.nc, int64(len(head)+len(value)+2)); err != nil {
					t.Fatal(err)
				}
				if sha256.Sum256([]byte(head+value+"\r\n")) != [32]byte(sum.Sum(nil)) {
					t.Errorf("GET %s differs from what was set", name)
				}
			}
		})
	}
}

func TestLargeCommandWithoutRedisIsReadToItsEnd(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
		c := dialClient(t, address(srv))
		c.do("PING")
		redis.Kill()
		waitFor(t, "the end of all pins to be seen", func() bool { // one that was being opened as well
			probe := dialClient(t, address(srv))
			probe.send("BLPOP", "l", "0")
			got, _ := probe.frame()
			pins, _ := srv.shared.Upstream.Pins()
			return strings.HasPrefix(got, "-NOUPSTREAM") && pins.Open == 0
		})
		c.raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", 8<<20))
		c.raw(strings.Repeat("x", 8<<20) + "\r\n")
		if got, err := c.frame(); err != nil || !strings.HasPrefix(got, "-NOUPSTREAM") {
			t.Errorf("%s: %.40q, %v, want NOUPSTREAM", engine, got, err)
		}
		if got := measured(srv); got >= budget.Free {
			t.Errorf("%s: %d bytes count behind the refusal", engine, got)
		}
		redis.Restart()
		redistest.Eventually(t, patience, "the session to serve again", func() bool { return c.do("PING") == "+PONG\r\n" })
	}
}

func TestLargeCommandInATransactionIsQueued(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		c := dialClient(t, address(startProxy(t, redis, func(o *Options) { o.Engine = engine })))
		c.send("MULTI")
		c.send("SET", "k", strings.Repeat("x", 8<<20))
		c.send("STRLEN", "k")
		c.send("EXEC")
		for _, want := range []string{"+OK\r\n", "+QUEUED\r\n", "+QUEUED\r\n", fmt.Sprintf("*2\r\n+OK\r\n:%d\r\n", 8<<20)} {
			if got, err := c.frame(); got != want || err != nil {
				t.Fatalf("%s: reply %.60q, %v, want %q", engine, got, err, want)
			}
		}
	}
}

// What was read behind a command that waits is the start of a large one. The rest is read when the wait is over.
func TestLargeCommandBehindACommandThatWaits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			srv := startProxy(t, redis, func(o *Options) {
				o.Engine = engine
				o.Limits.Memory = 32 << 20 // so that little is read behind the command that waits
			})
			holder, c := dialClient(t, address(srv)), dialClient(t, address(srv))
			holder.do("LOCK", t.Name())
			c.send("LOCK", t.Name())
			sent := make(chan error, 1)
			go func() {
				_, err := c.nc.Write(resp.AppendCommand(nil, "SET", "k", strings.Repeat("x", 8<<20)))
				sent <- err
			}()
			redistest.Eventually(t, patience, "the client not to be read any more", func() bool { return pausedSessions(srv) == 1 })
			holder.do("UNLOCK", t.Name())
			if got, err := c.frame(); err != nil || !strings.HasPrefix(got, ":") {
				t.Fatalf("LOCK = %q, %v", got, err)
			}
			if got, err := c.frame(); err != nil || got != "+OK\r\n" {
				t.Fatalf("SET = %q, %v", got, err)
			}
			if err := <-sent; err != nil {
				t.Error(err)
			}
		})
	}
}

// No pin comes for a large command. It is held whole, and the next command that needs a pin may get one.
func TestLargeCommandWithoutAPin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, func(o *Options) {
			o.Engine, o.Upstream.Pins.Max, o.Upstream.Pins.Wait = engine, 1, 20*time.Millisecond
		})
		holder, c := dialClient(t, address(srv)), dialClient(t, address(srv))
		holder.script("MULTI", "+OK")
		value := strings.Repeat("x", 5<<20)
		c.raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s", len(value), value[:1<<20]))
		redistest.Eventually(t, patience, "the wait for a pin to end", func() bool { return srv.shared.Counters.PinTimeouts.Load() == 1 })
		c.raw(value[1<<20:] + "\r\n")
		if got, err := c.frame(); got != "+OK\r\n" {
			t.Fatalf("%s: SET = %q, %v", engine, got, err)
		}
		holder.script("DISCARD", "+OK")
		redistest.Eventually(t, patience, "the pin to be given back", func() bool { return len(srv.Stats().PinReasons) == 0 })
		c.script("MULTI", "+OK", "DISCARD", "+OK")
	}
}

// Large commands wait for a connection. Their clients have announced more than the memory of all, and sent little of it. None is closed.
func TestAnnouncedBytesTakeLittleMemory(t *testing.T) {
	t.Parallel()
	const waiters, n, begun = 8, 5 << 20, 64 << 10
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, small, func(o *Options) { o.Engine, o.Upstream.Pins.Max, o.Upstream.Pins.Wait = engine, 1, time.Minute })
		holder := dialClient(t, address(srv))
		holder.script("MULTI", "+OK")
		var all [waiters]*peer
		for i := range all {
			p := dialClient(t, address(srv))
			p.script("PING", "+PONG") // it is admitted
			p.raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n%s", i, n, strings.Repeat("x", begun)))
			redistest.Eventually(t, patience, "all that has been sent to be held", func() bool { return measured(srv) >= (i+1)*begun })
			all[i] = p
		}
		if got, most := measured(srv), int(srv.shared.Budget.Limit()/2); got > most {
			t.Errorf("%s: %d bytes are taken for %d, want at most %d", engine, got, waiters*begun, most)
		}
		holder.script("DISCARD", "+OK")
		var running sync.WaitGroup
		for i, p := range all {
			running.Go(func() {
				p.raw(strings.Repeat("x", n-begun) + "\r\n")
				if got, err := p.frame(); got != "+OK\r\n" {
					t.Errorf("%s: SET of client %d = %q, %v", engine, i, got, err)
				}
			})
		}
		running.Wait()
		if n := srv.Stats().Closed["memory_limit"]; n > 0 {
			t.Errorf("%s: %d clients have been closed", engine, n)
		}
	}
}

// Redis does not take large commands. Their bytes count, and little of them is read. When Redis goes on, all are carried out.
func TestBytesOfLargeCommandsCountUntilRedisTakesThem(t *testing.T) {
	t.Parallel()
	const senders, n = 4, 24 << 20
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, small, func(o *Options) { o.Engine = engine })
		var all [senders]*peer
		for i := range all {
			all[i] = dialClient(t, address(srv))
			all[i].script("PING", "+PONG") // it is admitted
		}
		redis.Pause()
		var sent [senders]int
		for i, p := range all {
			p.raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n", i, n))
			if sent[i] = pour(t, p.nc, []byte(strings.Repeat("x", 64<<10)), n); sent[i] >= n {
				t.Fatalf("%s: a command is taken whole", engine)
			}
		}
		if got, least, most := measured(srv), senders*budget.Free, int(srv.shared.Budget.Limit()/2); got < least || got > most {
			t.Errorf("%s: %d bytes count, want %d to %d", engine, got, least, most)
		}
		redis.Continue()
		var running sync.WaitGroup
		for i, p := range all {
			running.Go(func() {
				p.raw(strings.Repeat("x", n-sent[i]) + "\r\n")
				if got, err := p.frame(); got != "+OK\r\n" {
					t.Errorf("%s: SET of client %d = %q, %v", engine, i, got, err)
				}
			})
		}
		running.Wait()
		redistest.Eventually(t, patience, "nothing to count any more", func() bool { return srv.shared.Budget.Used() == 0 })
	}
}

// A client ends its side behind a large command that waits for a pin. The command does not wait for other clients, so it runs.
func TestLargeCommandOfAClientThatHasEndedItsSide(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Upstream.Pins.Max, o.Upstream.Pins.Wait = engine, 1, patience })
		holder, c := dialClient(t, address(srv)), dialClient(t, address(srv))
		holder.script("MULTI", "+OK")
		c.script("PING", "+PONG") // it is admitted
		c.send("SET", "k", strings.Repeat("x", 5<<20))
		c.halfClose()
		redistest.Eventually(t, patience, "the wait for a pin", func() bool { return srv.shared.Counters.PinWaits.Load() == 1 })
		for range 10 { // meanwhile the end is seen
			holder.script("NOSUCH", "-ERR")
		}
		holder.script("DISCARD", "+OK")
		if got, err := c.frame(); got != "+OK\r\n" {
			t.Errorf("%s: SET = %q, %v", engine, got, err)
		}
	}
}
