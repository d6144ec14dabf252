package blackbox

import (
	"crypto/sha256"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxytest"
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

// The command is a client's first one, or is behind others.
func TestLargeCommandPassesWithoutBeingHeld(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	value := large()
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Query = 8 << 20 })
	c, other := srv.Dial(t), srv.Dial(t)
	for _, before := range []string{"", "*1\r\n$4\r\nPING\r\n"} {
		// Around it, commands that travel on the lane: their order must hold.
		c.Raw(fmt.Sprintf("%s*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", before, len(value)))
		c.Raw(value[:20<<20])
		other.Script("PING", "+PONG")
		c.Raw(value[20<<20:] + "\r\n*2\r\n$6\r\nSTRLEN\r\n$1\r\nk\r\n")
		if before != "" {
			c.Gets("+PONG")
		}
		c.Gets("+OK", fmt.Sprintf(":%d\r\n", len(value)))
	}
	direct := proxytest.Dial(t, redis.Addr())
	for name, from := range map[string]*proxytest.Client{"direct": direct, "through the proxy": c} {
		from.Send("GET", "k")
		_ = from.Conn.SetReadDeadline(time.Now().Add(time.Minute)) // that of a single frame is shorter
		sum := sha256.New()
		head := fmt.Sprintf("$%d\r\n", len(value))
		if _, err := io.CopyN(sum, from.Conn, int64(len(head)+len(value)+2)); err != nil {
			t.Fatal(err)
		}
		if sha256.Sum256([]byte(head+value+"\r\n")) != [32]byte(sum.Sum(nil)) {
			t.Errorf("GET %s differs from what was set", name)
		}
	}
}

func TestLargeCommandWithoutRedisEndsItsClient(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	c := srv.Dial(t)
	c.Do("PING")
	redis.Kill()
	proxytest.WaitFor(t, "the end of all pins to be seen", func() bool { // one that was being opened as well
		pins, _ := srv.Shared().Upstream.Pins.Status()
		return pins.Open == 0
	})
	_, _ = c.Conn.Write([]byte(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", 8<<20) + strings.Repeat("x", 1<<20)))
	if b, err := c.Frame(); err == nil || b != "" {
		t.Errorf("%q, %v instead of the end", b, err)
	}
	proxytest.WaitFor(t, "its memory to be free", func() bool { return srv.Measured() < budget.Free })
	redis.Restart()
	proxytest.Recovers(t, srv)
}

func TestLargeCommandInATransactionIsQueued(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	c := proxytest.Dial(t, proxytest.Start(t, redis).Addr())
	c.Send("MULTI")
	c.Send("SET", "k", strings.Repeat("x", 8<<20))
	c.Send("STRLEN", "k")
	c.Send("EXEC")
	c.Gets("+OK", "+QUEUED", "+QUEUED", fmt.Sprintf("*2\r\n+OK\r\n:%d\r\n", 8<<20))
}

// What was read behind a command that waits is the start of a large one. The rest is read when the wait is over.
func TestLargeCommandBehindACommandThatWaits(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Limits.Memory = 32 << 20 // so that little is read behind the command that waits
	})
	holder, c := srv.Dial(t), srv.Dial(t)
	holder.Do("LOCK", t.Name())
	c.Send("LOCK", t.Name())
	sent := make(chan error, 1)
	go func() {
		_, err := c.Conn.Write(resp.AppendCommand(nil, "SET", "k", strings.Repeat("x", 8<<20)))
		sent <- err
	}()
	proxytest.WaitFor(t, "the client not to be read any more", func() bool { return srv.Paused() == 1 })
	holder.Do("UNLOCK", t.Name())
	c.Gets(":", "+OK")
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

// No pin comes for a large command. It is held whole, and the next command that needs a pin may get one.
func TestLargeCommandWithoutAPin(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, 20*time.Millisecond })
	holder, c := srv.Dial(t), srv.Dial(t)
	holder.Script("MULTI", "+OK")
	value := strings.Repeat("x", 5<<20)
	c.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n%s", len(value), value[:1<<20]))
	proxytest.WaitFor(t, "the wait for a pin to end", func() bool { return srv.Stats().PinTimeouts == 1 })
	c.Raw(value[1<<20:] + "\r\n")
	c.Gets("+OK")
	holder.Script("DISCARD", "+OK")
	proxytest.WaitFor(t, "the pin to be given back", func() bool { return len(srv.Stats().PinReasons) == 0 })
	c.Script("MULTI", "+OK", "DISCARD", "+OK")
}

// Large commands wait for a connection. Their clients have announced more than the memory of all, and sent little of it. None is closed.
func TestAnnouncedBytesTakeLittleMemory(t *testing.T) {
	t.Parallel()
	const waiters, n, begun = 8, 5 << 20, 64 << 10
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, proxytest.LittleMemory, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, time.Minute })
	holder := srv.Dial(t)
	holder.Script("MULTI", "+OK")
	var all [waiters]*proxytest.Client
	for i := range all {
		p := srv.Dial(t)
		p.Script("PING", "+PONG") // it is admitted
		p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n%s", i, n, strings.Repeat("x", begun)))
		proxytest.WaitFor(t, "all that has been sent to be held", func() bool { return srv.Measured() >= (i+1)*begun })
		all[i] = p
	}
	if got, most := srv.Measured(), int(srv.Stats().MaxMemory/2); got > most {
		t.Errorf("%d bytes are taken for %d, want at most %d", got, waiters*begun, most)
	}
	holder.Script("DISCARD", "+OK")
	var running sync.WaitGroup
	for _, p := range all {
		running.Go(func() {
			p.Raw(strings.Repeat("x", n-begun) + "\r\n")
			p.Gets("+OK")
		})
	}
	running.Wait()
	if n := srv.Stats().Closed["memory_limit"]; n > 0 {
		t.Errorf("%d clients have been closed", n)
	}
}

// Redis does not take large commands. Their bytes count, and little of them is read. When Redis goes on, all are carried out.
func TestBytesOfLargeCommandsCountUntilRedisTakesThem(t *testing.T) {
	t.Parallel()
	const senders, n = 4, 24 << 20
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, proxytest.LittleMemory)
	var all [senders]*proxytest.Client
	for i := range all {
		all[i] = srv.Dial(t)
		all[i].Script("PING", "+PONG") // it is admitted
	}
	redis.Pause()
	var sent [senders]int
	for i, p := range all {
		p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\n%d\r\n$%d\r\n", i, n))
		if sent[i] = pour(t, p.Conn, []byte(strings.Repeat("x", 64<<10)), n); sent[i] >= n {
			t.Fatalf("a command is taken whole")
		}
	}
	if got, least, most := srv.Measured(), senders*budget.Free, int(srv.Stats().MaxMemory/2); got < least || got > most {
		t.Errorf("%d bytes count, want %d to %d", got, least, most)
	}
	redis.Continue()
	var running sync.WaitGroup
	for i, p := range all {
		running.Go(func() {
			p.Raw(strings.Repeat("x", n-sent[i]) + "\r\n")
			p.Gets("+OK")
		})
	}
	running.Wait()
	proxytest.WaitFor(t, "nothing to count any more", func() bool { return srv.Stats().Memory == 0 })
}

// A client ends its side behind a large command that waits for a pin. The command does not wait for other clients, so it runs.
func TestLargeCommandOfAClientThatHasEndedItsSide(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Pins.Max, o.Upstream.Pins.Wait = 1, time.Second })
	holder, c := srv.Dial(t), srv.Dial(t)
	holder.Script("MULTI", "+OK")
	c.Script("PING", "+PONG") // it is admitted
	c.Send("SET", "k", strings.Repeat("x", 5<<20))
	c.HalfClose()
	proxytest.WaitFor(t, "the wait for a pin", func() bool { return srv.Stats().PinWaits == 1 })
	for range 10 { // meanwhile the end is seen
		holder.Script("NOSUCH", "-ERR")
	}
	holder.Script("DISCARD", "+OK")
	c.Gets("+OK")
}
