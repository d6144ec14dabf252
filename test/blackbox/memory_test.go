package blackbox

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// pour sends as much of total bytes of piece as the other side takes, and returns how many it took.
func pour(t *testing.T, nc net.Conn, piece []byte, total int) int {
	t.Helper()
	sent := 0
	for sent < total {
		_ = nc.SetWriteDeadline(time.Now().Add(300 * time.Millisecond))
		n, err := nc.Write(piece)
		sent += n
		if errors.Is(err, os.ErrDeadlineExceeded) {
			break
		} else if err != nil {
			t.Fatalf("after %d bytes: %v", sent, err)
		}
	}
	_ = nc.SetWriteDeadline(time.Time{})
	return sent
}

// heldAtMost is what a session holds of its client's input behind a command that waits.
const heldAtMost = 16 << 20

// What is sent behind a command that waits stays with the sender, and is executed when the wait is over. It does not take the memory of all: nobody is
// closed for it.
func TestInputBehindACommandThatWaitsStaysInTheSockets(t *testing.T) {
	redis := redistest.Start(t)
	command := resp.AppendCommand(nil, "SETRANGE", "x", "0", strings.Repeat("v", 64<<10))
	for verb, memory := range map[string]int{"LOCK": 1 << 30, "BLPOP": 16 << 20} {
		t.Run(verb, func(t *testing.T) {
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = memory })
			holder := srv.Dial(t)
			holder.Script("LOCK k", ":")
			const waiters, total = 3, 64 << 20
			var all [waiters]*proxytest.Client
			var sent [waiters]int
			for i := range all {
				all[i] = srv.Dial(t)
				if verb == "LOCK" {
					all[i].Send("LOCK", "k")
					proxytest.WaitFor(t, "the client to wait", func() bool { return srv.Stats().Waiting == i+1 })
					all[i].Send("UNLOCK", "k")
				} else {
					all[i].Send("BLPOP", "l", "0")
					proxytest.AwaitBlocked(t, i+1, redis)
				}
				if sent[i] = pour(t, all[i].Conn, command, total); sent[i] >= total {
					t.Errorf("all %d MiB were taken behind a command that waits", sent[i]>>20)
				}
			}
			if got, most := srv.Measured(), waiters*2*heldAtMost; got > most {
				t.Errorf("%d bytes are held, want at most %d", got, most)
			}
			var heap runtime.MemStats
			runtime.GC()
			runtime.ReadMemStats(&heap)
			if heap.HeapInuse > 200<<20 {
				t.Errorf("the heap has %d MiB", heap.HeapInuse>>20)
			}
			holder.Script("UNLOCK k", ":1", "RPUSH l a b c", ":3")
			for i, c := range all {
				if rest := sent[i] % len(command); rest > 0 {
					go func() { _, _ = c.Conn.Write(command[rest:]) }()
				}
			}
			for i, c := range all {
				if verb == "LOCK" {
					c.Gets(":", ":1")
				} else {
					c.Gets("*2\r\n")
				}
				for range (sent[i] + len(command) - 1) / len(command) {
					c.Gets(":65536")
				}
			}
			if n := srv.Stats().Closed["memory_limit"]; n > 0 {
				t.Errorf("%d clients closed", n)
			}
			redis.Do(t, "DEL", "l")
			proxytest.WaitFor(t, "everything to be given back", func() bool { return srv.Measured() < waiters*2*budget.Free })
		})
	}
}

// A client that hangs up waits no longer, whatever it has sent behind its LOCK.
func TestHangupIsSeenBehindUnreadInput(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS, func(o *proxy.Options) { o.Limits.Memory = 1 << 20 }) // so that little is read
		holder := dial(srv)
		holder.Do("LOCK", "k")
		for _, hangup := range []func(c *proxytest.Client){
			func(c *proxytest.Client) { _ = c.Conn.Close() },
			func(c *proxytest.Client) { _ = c.Socket().CloseWrite() },
			func(c *proxytest.Client) {
				_ = c.Socket().SetLinger(0)
				_ = c.Socket().Close()
			},
		} {
			c := dial(srv)
			c.Send("LOCK", "k")
			proxytest.WaitFor(t, "the client to wait", func() bool { return srv.Stats().Waiting == 1 })
			c.Raw(strings.Repeat(string(resp.AppendCommand(nil, "SET", "ghost", strings.Repeat("v", 1000))), 90))
			proxytest.WaitFor(t, "the client not to be read any more", func() bool { return srv.Paused() == 1 })
			hangup(c)
			proxytest.WaitFor(t, "the wait to end", func() bool { return srv.Stats().Waiting == 0 && srv.Stats().Clients == 1 })
		}
		holder.Script("EXISTS ghost", ":0")
	})
}

// The same holds for a command that waits in Redis: no element of a list is given to a client that has gone.
func TestHangupIsSeenBehindBlockingCommand(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = 1 << 20 })
	other, c := srv.Dial(t), srv.Dial(t)
	c.Send("BLPOP", "list", "0")
	c.Send("SELECT", "1") // waits for the reply, and everything behind it
	c.Raw(strings.Repeat(string(resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 1000))), 90))
	proxytest.WaitFor(t, "the client not to be read any more", func() bool { return srv.Paused() == 1 })
	c.HalfClose()
	proxytest.WaitFor(t, "the client to be gone", func() bool { return srv.Stats().Clients == 1 })
	proxytest.AwaitBlocked(t, 0, redis)
	other.Script("RPUSH list x", ":1")
	other.Do("DEL", "list")
}

// The largest are closed first, with the reason in the log; nobody else notices.
func TestLargestClientsAreCutWhenAllTogetherHaveTooMuch(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "SET", "big", strings.Repeat("v", 1<<20))
	core, logs := observer.New(zap.WarnLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Limits.Memory, o.Logger = 32<<20, zap.New(core)
	})
	small, large := srv.Dial(t), srv.Dial(t)
	small.Raw(strings.Repeat("GET big\r\n", 18)) // some of it is in the sockets
	proxytest.WaitFor(t, "the first client's replies", func() bool { return srv.Measured() > 6<<20 })
	for range 30 {
		if srv.Stats().Closed["memory_limit"] > 0 {
			break
		}
		_, _ = large.Conn.Write([]byte(strings.Repeat("GET big\r\n", 10)))
	}
	proxytest.WaitFor(t, "the largest client to be closed", func() bool { return srv.Stats().Closed["memory_limit"] == 1 })
	for range 18 {
		if got, err := small.Frame(); err != nil || len(got) < 1<<20 {
			t.Fatalf("the other client got %d bytes, %v", len(got), err)
		}
	}
	small.Script("PING", "+PONG")
	warnings := logs.FilterField(zap.String("limit", "max-memory")).All()
	if len(warnings) != 1 || warnings[0].ContextMap()["client"] != large.Conn.LocalAddr().String() {
		t.Errorf("the log says %v", warnings)
	}
	proxytest.WaitFor(t, "everything to be given back", func() bool { return srv.Stats().Memory == 0 })
}

// Requests that Redis does not take are memory as well.
func TestRequestsThatRedisDoesNotTakeAreCharged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = 32 << 20 })
	const clients = 24
	var all [clients]*proxytest.Client
	for i := range all {
		all[i] = srv.Dial(t)
		all[i].Do("PING")
	}
	command := resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 60<<10))
	redis.Pause()
	defer redis.Continue()
	sent := make([]int, clients)
	done := make(chan struct{})
	for i, c := range all {
		go func() {
			sent[i] = pour(t, c.Conn, command, 64<<20)
			done <- struct{}{}
		}()
	}
	for range all {
		<-done
	}
	if got := srv.Stats().Memory; got > 32<<20 {
		t.Errorf("%d MiB are charged", got>>20)
	}
	if n := srv.Stats().Closed["memory_limit"]; n != 0 {
		t.Errorf("%d clients were closed although it was enough not to read them", n)
	}
	redis.Continue()
	for i, c := range all {
		if rest := sent[i] % len(command); rest > 0 {
			if _, err := c.Conn.Write(command[rest:]); err != nil {
				t.Fatal(err)
			}
		}
		for range (sent[i] + len(command) - 1) / len(command) {
			c.Gets("+OK")
		}
	}
	proxytest.WaitFor(t, "everything to be given back", func() bool { return srv.Stats().Memory == 0 })
}

// So are empty ones. A client whose bytes pass unread is not read further than Redis takes them.
func TestUnreadRequestsThatRedisDoesNotTakeAreCharged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, way := range [][2]string{{"MONITOR", proxytest.Inline("ECHO " + strings.Repeat("x", 1000))}, {"CLIENT NO-EVICT on", proxytest.Inline(strings.Repeat(" ", 1000))}} {
		srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = 4 << 20 })
		c := srv.Dial(t)
		c.Quiet(strings.Fields(way[0])...)
		redis.Pause()
		raw := way[0] == "MONITOR"
		limit := proxytest.Patience
		if raw {
			limit = time.Second // it ends the writing to a proxy that does not read
		}
		_ = c.Conn.SetWriteDeadline(time.Now().Add(limit))
		piece := []byte(strings.Repeat(way[1], 100))
		for sent, err := 0, error(nil); err == nil && sent < 64<<20; sent += len(piece) {
			_, err = c.Conn.Write(piece) // fails when the client is closed, or not read
		}
		if raw {
			if got := srv.Measured(); got > 2<<20 || srv.Stats().Clients != 1 {
				t.Errorf("%d bytes are kept of %d clients that monitor", got, srv.Stats().Clients)
			}
		} else {
			proxytest.WaitFor(t, "the client to be closed behind "+way[0], func() bool { return srv.Stats().Closed["memory_limit"] == 1 })
		}
		redis.Continue()
	}
}

// An idle client does not keep what one large command made the proxy take.
func TestIdleClientsKeepLittle(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	many := strings.Split(strings.Repeat("a ", 30_000)+"a", " ")
	long := strings.Repeat("x", 1<<20)
	for _, command := range [][]string{
		append([]string{"LOCK"}, many...),
		append([]string{"CLIENT"}, many...),
		append([]string{"PUBLISH"}, many...),
		{"LOCK", long, "PX", "10000"},
		{"UNLOCK", long},
		{"GET", long},
	} {
		c := srv.Dial(t)
		c.Do(command...)
		c.Do("PING")
		held := 0
		if command[1] == long && command[0] == "LOCK" {
			held = len(long) // the name of the lock, until its end
		}
		if got := srv.Measured(); got > 2*budget.Free+held {
			t.Errorf("%d bytes are kept after %s", got, command[0])
		}
		_ = c.Conn.Close()
		proxytest.WaitFor(t, "the client to be gone", func() bool { return srv.Stats().Clients == 0 })
	}
}

// What a client that monitors does not read waits at Redis, as on a direct connection. Nothing of it is lost.
func TestMonitorIsReadNoFasterThanItsClientReads(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	monitor, gone, writer := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	monitor.Do("MONITOR")
	gone.Do("MONITOR")
	const commands = 24
	value := strings.Repeat("\n", 512<<10) // MONITOR shows a megabyte, which costs Redis less than letters
	for range commands {
		writer.Do("SET", "k", value)
		if got := srv.Measured(); got > 8<<20 {
			t.Fatalf("%d bytes are kept for clients that do not read", got)
		}
	}
	other := srv.Dial(t) // those that do not read keep nobody else waiting who needs a connection of its own
	other.Script("MULTI", "+OK", "GET none", "+QUEUED", "EXEC", "*1\r\n$-1")
	_ = gone.Conn.Close()
	proxytest.WaitFor(t, "the client that has gone to leave its connection", func() bool { return srv.Stats().PinReasons["monitor"] == 1 })
	for n := 0; n < commands; {
		line, err := monitor.Frame()
		if err != nil {
			t.Fatalf("after %d commands: %v", n, err)
		}
		if strings.Contains(line, `"SET"`) {
			n++
		}
	}
}

// Names are the client's choice.
func TestNamesAreCharged(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = 16 << 20 })
	for range 12 {
		c := srv.Dial(t)
		_, _ = c.Conn.Write(resp.AppendCommand(nil, "CLIENT", "SETNAME", strings.Repeat("n", 2<<20)))
		_, _ = c.Frame()
	}
	for range 3 {
		c := srv.Dial(t)
		c.Do("MULTI")
		for range 6 {
			_, _ = c.Conn.Write(resp.AppendCommand(nil, "CLIENT", "SETNAME", strings.Repeat("n", 1<<20)))
			_, _ = c.Frame()
		}
	}
	proxytest.WaitFor(t, "clients to be closed", func() bool { return srv.Stats().Closed["memory_limit"] > 0 })
	proxytest.WaitFor(t, "the rest to fit", func() bool { return srv.Measured() <= 16<<20 })
}

// The names of locks are in the memory of the proxy for as long as the locks are held.
func TestLocksCountTowardTheMemoryOfTheirClient(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Limits.Memory = 16 << 20 })
	other, c := srv.Dial(t), srv.Dial(t)
	other.Do("LOCK", "small")
	const locks = 1000
	name := strings.Repeat("n", 4000)
	for i := range locks {
		c.Do("LOCK", name+fmt.Sprint(i))
	}
	if got := srv.Measured(); got < locks*len(name) {
		t.Errorf("%d bytes of names count as %d", locks*len(name), got)
	}
	for i := range locks {
		c.Do("UNLOCK", name+fmt.Sprint(i))
	}
	proxytest.WaitFor(t, "the names to be released", func() bool { return srv.Measured() < locks*len(name)/2 })
	other.Script("UNLOCK small", ":1")
}

// Clients choose the names of locks, and the log is for people.
func TestLongNamesOfLocksDoNotFillTheLog(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	core, logs := observer.New(zap.DebugLevel)
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Logger = zap.New(core) })
	holder, other := srv.Dial(t), srv.Dial(t)
	name := strings.Repeat("n", 4<<10)
	holder.Quiet("LOCK", name)
	other.Quiet("FORCEUNLOCK", name)
	proxytest.WaitFor(t, "the loss", func() bool { return logs.FilterMessageSnippet("lost").Len() > 0 })
	for _, entry := range logs.All() {
		for field, value := range entry.ContextMap() {
			if text := fmt.Sprint(value); len(text) > 1_000 {
				t.Errorf("%s: %s has %d bytes", entry.Message, field, len(text))
			}
		}
	}
}

// A client may send commands faster than they can be carried out one by one. They stay in its sockets.
func TestCommandsThatAreCarriedOutOneByOneStayInTheSockets(t *testing.T) {
	t.Parallel()
	const name, most, mostOfStrangers = "lock", 4 << 20, 192 << 10
	for _, test := range []struct {
		pipeline [][]string
		password string // of Redis; the client does not know it
		most     int
	}{
		{[][]string{{"AUTH", "nobody", "wrong"}}, "secret", mostOfStrangers},
		{[][]string{{"HELLO", "3", "AUTH", "nobody", "wrong"}}, "secret", mostOfStrangers},
		{[][]string{{"GET", "k"}}, "secret", mostOfStrangers},
		{[][]string{{"LOCK", name}, {"UNLOCK", name}}, "secret", mostOfStrangers},
		{[][]string{{"AUTH", "nobody", "wrong"}}, "", most},
		{[][]string{{"LOCK", name}, {"UNLOCK", name}}, "", most},
		{[][]string{{"TRYLOCK", name, "PX", "1"}}, "", most},
		{[][]string{{"SELECT", "0"}, {"SELECT", "1"}}, "", most},
		{[][]string{{"CLIENT", "KILL", "ID", "1000000"}}, "", most},
		{[][]string{{"MULTI"}, {"EXEC"}}, "", most},
		{[][]string{{"SUBSCRIBE", "c"}, {"UNSUBSCRIBE", "c"}}, "", most},
		{[][]string{{"CLIENT", "SETNAME", "n"}, {"CLIENT", "REPLY", "ON"}}, "", most},
	} {
		title := fmt.Sprint(test.pipeline[0][0], test.password)
		t.Run(title, func(t *testing.T) {
			var args []string
			if test.password != "" {
				args = []string{"--requirepass", test.password}
			}
			redis := redistest.Start(t, args...)
			var piece []byte
			for len(piece) < 1<<20 {
				for _, command := range test.pipeline {
					piece = resp.AppendCommand(piece, command...)
				}
			}
			srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Password, o.Limits.Unanswered = test.password, 256<<10 })
			c := srv.Dial(t)
			go func() { _, _ = io.Copy(io.Discard, c.Conn) }()
			for n, taken := 0, true; taken && n < 4*most; n += len(piece) { // Redis may be as fast as the client
				taken = pour(t, c.Conn, piece, len(piece)) == len(piece)
				if got := srv.Measured(); got > test.most {
					t.Fatalf("%d bytes are held, want at most %d", got, test.most)
				}
			}
			_ = c.Conn.Close()
			proxytest.WaitFor(t, "everything to be given back", func() bool { return srv.Measured() == 0 })
		})
	}
}

// The losses of which a client has not been told are its memory, on top of the 32 KB that a client has for nothing.
func TestLossesAreMemoryOfTheirClient(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c, other := srv.Dial(t), srv.Dial(t)
	var locks []string
	for i := range 1000 {
		locks = append(locks, fmt.Sprintf("LOCK k%d PX 2000", i))
	}
	c.Together(locks...)
	proxytest.WaitFor(t, "the memory of the losses", func() bool {
		info := other.Do("INFO", "lockproxy")
		_, lost, _ := strings.Cut(info, "locks_lost:")
		_, memory, _ := strings.Cut(info, "clients_memory:")
		var n int
		_, err := fmt.Sscan(memory, &n)
		return err == nil && n > 50<<10 && strings.HasPrefix(lost, "1000\r\n")
	})
}
