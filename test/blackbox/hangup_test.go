package blackbox

import (
	"fmt"
	"io"
	"net"
	"path/filepath"
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

// nothingRemains waits until a proxy has no client any more, and no connection that serves one.
func nothingRemains(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	proxytest.WaitFor(t, "nothing to remain", func() bool {
		s := srv.Stats()
		return s.Clients == 0 && len(s.PinReasons) == 0 && s.Waiting == 0 && laneUsers(srv) == 0
	})
}

// A client that has ended its side, or its session, may take its time to read the replies. Its locks and its connections to Redis do not
// wait for that.
func TestUnreadRepliesKeepNothingElse(t *testing.T) {
	t.Parallel()
	const size = 2 << 20 // more than sockets of this kind hold
	value := strings.Repeat("v", size)
	ends := map[string]struct {
		end   func(c *proxytest.Client)
		reply string
	}{
		"half-close":     {(*proxytest.Client).HalfClose, ""},
		"quit":           {func(c *proxytest.Client) { c.Send("QUIT") }, "+OK\r\n"},
		"protocol error": {func(c *proxytest.Client) { c.Raw("*x\r\n") }, "-ERR Protocol error: invalid multibulk length\r\n"},
	}
	redis := redistest.Start(t)
	redis.Do(t, "SET", "big", value)
	path := filepath.Join(t.TempDir(), "p")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Listen = []string{"unix:" + path} })
	for _, pin := range []string{"PING", "WATCH w", "SUBSCRIBE c"} {
		for name, e := range ends {
			c := proxytest.Dial(t, "unix:"+path)
			c.Each("HELLO 3", "LOCK k GRACE 0")
			c.Quiet(strings.Fields(pin)...)
			c.Send("GET", "big")
			proxytest.WaitFor(t, "a reply that is not read", func() (unread bool) {
				srv.EachClient(func(s proxy.ClientStatus) { unread = s.Unread > size/2 && s.Unanswered == 0 })
				return unread
			})
			e.end(c)
			proxytest.WaitFor(t, "the lock and the connections to be given back ("+name+", "+pin+")", func() bool {
				return redis.Do(t, "EXISTS", "k") == int64(0) && laneUsers(srv) == 0 && len(srv.Stats().PinReasons) == 0
			})
			if n := srv.Stats().Clients; n != 1 {
				t.Errorf("%s, %s: %d clients", name, pin, n)
			}
			got, err := io.ReadAll(c.Conn)
			if want := fmt.Sprintf("$%d\r\n%s\r\n%s", size, value, e.reply); string(got) != want || err != nil {
				t.Errorf("%s, %s: %d bytes, %v, want %d", name, pin, len(got), err, len(want))
			}
			_ = c.Conn.Close()
			nothingRemains(t, srv)
		}
	}
}

func laneUsers(srv *proxytest.Proxy) (n int) {
	for _, l := range srv.Shared().Upstream.Lanes.List() {
		n += l.Users
	}
	return n
}

// A session that ends tells its lock engine that it will get no answers: whoever was to get the lock next must go on.
func TestReleaseOfASubscriberThatHangsUpIsSettled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	holder, waiter := srv.Dial(t), srv.Dial(t)
	for _, args := range [][]string{{"HELLO", "3"}, {"SUBSCRIBE", "news"}, {"LOCK", "a"}} {
		holder.Send(args...)
		holder.Expect(1)
	}
	waiter.Send("LOCK", "a")
	proxytest.WaitFor(t, "the waiter to wait", func() bool { return srv.Stats().Waiting == 1 })
	redis.Pause()
	holder.Send("UNLOCK", "a")
	proxytest.WaitFor(t, "the release to be sent", func() bool {
		return srv.StatusOf(holder).Unanswered == 1
	})
	if err := holder.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = holder.Conn.Close()
	proxytest.WaitFor(t, "the session to end", func() bool { return srv.StatusOf(holder) == nil })
	redis.Continue()
	waiter.Gets(":")
	waiter.Script("UNLOCK a", ":1")
}
