package blackbox

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// hangups are the ways in which a client may end.
var hangups = map[string]func(c *proxytest.Client){
	"half-close": (*proxytest.Client).HalfClose,
	"close":      func(c *proxytest.Client) { _ = c.Conn.Close() },
	"reset": func(c *proxytest.Client) {
		_ = c.Socket().SetLinger(0)
		_ = c.Conn.Close()
	},
}

// awaitClients waits until so many clients are blocked in Redis, and the proxy has so many.
func awaitClients(t testing.TB, srv *proxytest.Proxy, blocked int, clients int64) {
	t.Helper()
	proxytest.WaitFor(t, "the clients to wait or to be gone", func() bool {
		return proxytest.Blocked(t, srv.Redis) == blocked && srv.Stats().Clients == clients
	})
}

// nothingIsLost fails unless the list has its one element, and nothing behind the wait was executed. It empties the database.
func nothingIsLost(t testing.TB, redis *redistest.Server, what ...string) {
	t.Helper()
	if got := fmt.Sprint(redis.Do(t, "EVAL", "return {redis.call('LLEN', 'l'), redis.call('EXISTS', 'k', 'ghost')}", 0)); got != "[1 0]" {
		t.Errorf("%s: elements that are left, and keys that were written: %s", what, got)
	}
	redis.Do(t, "FLUSHALL")
}

// A client that hangs up while no connection is free for its blocking command takes nothing from the list later.
func TestAWaitForAPinEndsWithTheClient(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Upstream.Pins.Max = 1
		o.Upstream.Pins.Wait = time.Minute
	})
	for how, hangup := range hangups {
		busy, c := srv.Dial(t), srv.Dial(t)
		busy.Send("BLPOP", "busy", "0")
		awaitClients(t, srv, 1, 2)
		waits := srv.Stats().PinWaits
		c.Raw(proxytest.Inline("GET a", "BLPOP l 0", "SET ghost 1", "LOCK k"))
		proxytest.WaitFor(t, "the wait for a pin", func() bool { return srv.Stats().PinWaits > waits })
		hangup(c)
		proxytest.WaitFor(t, "the client to be gone", func() bool { return srv.Stats().Clients == 1 })
		srv.Redis.Do(t, "RPUSH", "l", "x")
		srv.Redis.Do(t, "RPUSH", "busy", "x")
		if _, err := busy.Frame(); err != nil {
			t.Fatal(err)
		}
		_ = busy.Conn.Close()
		awaitClients(t, srv, 0, 0)
		nothingIsLost(t, srv.Redis, how)
	}
}

// A wait that ends with its client takes no reply with it that the client has before the wait.
func TestRepliesBeforeAWaitAreWritten(t *testing.T) {
	t.Parallel()
	const rounds = 50
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) {
		o.Upstream.Pins.Max = 1
		o.Upstream.Pins.Wait = time.Minute
	})
	busy := srv.Dial(t)
	busy.Quiet("LOCK", "k")
	busy.Send("BLPOP", "busy", "0")
	awaitClients(t, srv, 1, 1)
	for _, wait := range []string{"BLPOP l 0", "LOCK k WAIT 60000"} {
		for range rounds {
			servedToTheEnd(t, srv, proxytest.Inline("SET a 1", wait, "SET ghost 1"), "+OK\r\n")
		}
	}
	if got := srv.Redis.Do(t, "EXISTS", "ghost"); got != int64(0) {
		t.Error("what is behind the wait was executed")
	}
}

// A hang-up is seen behind any number of commands that stand behind a blocking one, and more of them than may be unanswered
// are held back, not lost.
func TestAHangupIsSeenBehindManyCommandsThatWait(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Limits.Unanswered = 1000 })
	many := strings.Repeat(proxytest.Inline("INCR n"), 1000)
	for how, hangup := range hangups {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("BLPOP l 0") + many)
		awaitClients(t, srv, 1, 1)
		hangup(c)
		awaitClients(t, srv, 0, 0)
		srv.Redis.Do(t, "RPUSH", "l", how)
		if got := srv.Redis.Do(t, "LPOP", "l"); got != how {
			t.Errorf("%s: the list had %v", how, got)
		}
	}
	c := srv.Dial(t)
	c.Raw(proxytest.Inline("BLPOP l 0") + many)
	awaitClients(t, srv, 1, 1)
	srv.Redis.Do(t, "RPUSH", "l", "x")
	for range 1000 {
		if _, err := c.Frame(); err != nil {
			t.Fatal(err)
		}
	}
	c.Gets(":1000")
}

// A client may end its side behind its last command, as a pipe into nc does. All that Redis serves at once is done and answered, however
// closely the end of the client follows.
func TestCommandsInFrontOfTheEndAreServed(t *testing.T) {
	t.Parallel()
	const rounds = 100
	srv := proxytest.Start(t, redistest.Start(t))
	for _, c := range []struct{ lines, want string }{
		{proxytest.Inline("RPUSH l a", "BLPOP l 0", "SET k v", "GET k"), ":1\r\n*2\r\n$1\r\nl\r\n$1\r\na\r\n+OK\r\n$1\r\nv\r\n"},
		{proxytest.Inline("RPUSH l a b", "BLPOP l 0", "CLIENT SETNAME x", "BLPOP l 0", "CLIENT GETNAME"), ":2\r\n*2\r\n$1\r\nl\r\n$1\r\na\r\n+OK\r\n*2\r\n$1\r\nl\r\n$1\r\nb\r\n$1\r\nx\r\n"},
		{proxytest.Inline("MULTI", "RPUSH l a", "EXEC", "BLPOP l 0", "RESET", "GET k"), "+OK\r\n+QUEUED\r\n*1\r\n:1\r\n*2\r\n$1\r\nl\r\n$1\r\na\r\n+RESET\r\n$-1\r\n"},
	} {
		for range rounds {
			servedToTheEnd(t, srv, c.lines, c.want)
			srv.Redis.Do(t, "DEL", "k", "l")
		}
	}
}

// servedToTheEnd has a client send lines and end its side.
func servedToTheEnd(t *testing.T, srv *proxytest.Proxy, lines, want string) {
	t.Helper()
	c := srv.Dial(t)
	c.Raw(lines)
	c.HalfClose()
	got, err := io.ReadAll(c.Conn)
	_ = c.Conn.Close()
	if string(got) != want || err != nil {
		t.Fatalf("%q: %q, %v, want %q", lines, got, err, want)
	}
}

// A client that gets no replies may end together with its last bytes. Its end is seen all the same, and its locks are free.
func TestAnEndThatComesWithTheLastBytesIsSeen(t *testing.T) {
	t.Parallel()
	const clients = 100
	srv := proxytest.Start(t, redistest.Start(t))
	for how, hangup := range hangups {
		observer := srv.Dial(t)
		for i := range clients {
			c := srv.Dial(t)
			c.Script("PING", "+PONG")
			c.Raw(proxytest.Inline("CLIENT REPLY OFF", "LOCK k"+strconv.Itoa(i)))
			hangup(c)
		}
		proxytest.WaitFor(t, "the locks of clients that end by "+how, func() bool {
			return observer.Quiet("LOCKLIST", "COUNT", "1") == "*0\r\n" && strings.Count(observer.Quiet("CLIENT", "LIST"), " addr=") == 1
		})
		_ = observer.Conn.Close()
	}
}
