package transparency

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// noPin refuses a command that needs a pin.
const noPin = "-OVERLOADED no upstream connection is free (max-pins), nothing was sent\r\n"

// withoutPins runs a test on both engines with two clients. The first one watches a key, for which it has the only pin.
func withoutPins(t *testing.T, test func(t *testing.T, srv *proxytest.Proxy, holder, c *proxytest.Client)) {
	proxytest.PerEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		srv := proxytest.Start(t, redis, func(o *proxy.Options) {
			o.Engine, o.Upstream.Pins.Max, o.Upstream.Pins.Wait = engine, 1, 50*time.Millisecond
		})
		holder := srv.Dial(t)
		holder.Script("WATCH w", "+OK")
		test(t, srv, holder, srv.Dial(t))
	})
}

// No pin is free for a MULTI. The client has sent the commands of the transaction with it, so none of them runs alone.
func TestNothingOfARefusedTransactionRunsAlone(t *testing.T) {
	t.Parallel()
	withoutPins(t, func(t *testing.T, srv *proxytest.Proxy, holder, c *proxytest.Client) {
		for _, end := range []string{"EXEC", "DISCARD"} {
			c.Script("LOCK l", ":") // the connection, and so the lock, stays
			c.Raw(proxytest.Inline("MULTI", "SET k 1"))
			c.Gets(noPin, noPin)
			c.Raw(proxytest.Inline("SET k 2", "SELECT 1", "LOCK l2", "SUBSCRIBE c", "WATCH k", "CLIENT REPLY SKIP", "PING", end))
			c.Gets(slices.Repeat([]string{noPin}, 8)...)
			c.Script("GET k", "$-1", "UNLOCK l", ":1")
		}
		const size = 5 << 20 // is streamed
		c.Raw(proxytest.Inline("MULTI") + fmt.Sprintf("*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$%d\r\n", size))
		c.Gets(noPin)
		c.Raw(strings.Repeat("x", size) + "\r\n" + proxytest.Inline("EXEC"))
		c.Gets(noPin, noPin)
		c.Raw(proxytest.Inline("MULTI", "SET k 1"))
		c.Gets(noPin, noPin)
		c.Script("RESET", "+RESET", "SET k 3", "+OK", "MULTI", noPin, "GET k", "$1\r\n3\r\n") // this client waits for each reply
		timeouts := srv.Stats().PinTimeouts
		c.Raw(proxytest.Inline("CLIENT REPLY OFF", "MULTI")) // it cannot wait for the reply
		proxytest.WaitFor(t, "the refusal", func() bool { return srv.Stats().PinTimeouts > timeouts })
		c.Raw(proxytest.Inline("SET k 8", "EXEC"))
		c.Script("CLIENT REPLY ON", "+OK", "GET k", "$1\r\n3\r\n")
		c.Raw(proxytest.Inline("MULTI", "SET k 4"))
		c.Gets(noPin, noPin)
		holder.Script("UNWATCH", "+OK")
		c.Script("MULTI", "+OK", "SET k 5", "+QUEUED", "EXEC", "*1\r\n+OK\r\n", "GET k", "$1\r\n5\r\n")
	})
}

// No pin is free for a WATCH. The client has sent a transaction with it, which would run without the watch.
func TestNoTransactionRunsBehindARefusedWatch(t *testing.T) {
	t.Parallel()
	withoutPins(t, func(t *testing.T, srv *proxytest.Proxy, holder, c *proxytest.Client) {
		before := srv.Stats().PinTimeouts
		c.Raw(proxytest.Inline("WATCH k", "GET k", "MULTI", "SET k 1", "EXEC"))
		proxytest.WaitFor(t, "the refusal", func() bool { return srv.Stats().PinTimeouts > before })
		holder.Script("UNWATCH", "+OK") // the transaction would find a connection
		c.Gets(slices.Repeat([]string{noPin}, 5)...)
		c.Script("GET k", "$-1")
		holder.Script("WATCH w", "+OK")
		c.Script("WATCH k", noPin) // this client waits for each reply
		holder.Script("UNWATCH", "+OK")
		c.Script("MULTI", "+OK", "SET k 2", "+QUEUED", "EXEC", "*1\r\n+OK\r\n", "GET k", "$1\r\n2\r\n")
	})
}

// Redis is away when SELECT comes, and is there again for the commands behind it, which are for the other database. The client has not seen the refusal.
func TestNothingRunsInADatabaseThatTheClientHasLeft(t *testing.T) {
	t.Parallel()
	proxytest.EachEngine(t, func(t *testing.T, srv *proxytest.Proxy) {
		c, other := srv.Dial(t), srv.Dial(t)
		c.Script("SET k 1", "+OK")
		c.Raw(proxytest.Inline("CLIENT REPLY OFF", "CLIENT SETNAME silent"))
		proxytest.WaitFor(t, "the client to get no replies", func() bool { return strings.Contains(other.Quiet("CLIENT", "LIST"), "name=silent") })
		takeAway(t, srv.Redis, srv)
		c.Raw(proxytest.Inline("SELECT 1", "CLIENT REPLY ON"))
		c.Gets(proxytest.Unreachable) // only Redis knows whether the user may do that
		srv.Redis.Restart()
		proxytest.WaitFor(t, "Redis to be there", func() bool { return other.Quiet("SET", "k", "3") == "+OK\r\n" })
		c.Script("CLIENT REPLY ON", "+OK")
		c.Raw(proxytest.Inline("SET k 4", "MULTI", "SET k 5", "EXEC"))
		c.Gets(slices.Repeat([]string{proxytest.Unreachable}, 4)...)
		c.Script("GET k", "$1\r\n3\r\n", "SELECT 1", "+OK", "GET k", "$-1")
	})
}

// noLane refuses a change of the database at once.
const noLane = "-OVERLOADED no connection to share is free for this identity (max-lanes), nothing was sent\r\n"

// withoutLanes runs a test on both engines with a proxy that has all lanes that it may have. In database 0 k is 1.
func withoutLanes(t *testing.T, test func(t *testing.T, srv *proxytest.Proxy), change func(*proxy.Options)) {
	proxytest.PerEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Engine, o.ClientAuth, o.Upstream.MaxLanes = engine, proxy.AuthProxy, 8 }, change)
		for db := range 7 {
			srv.Dial(t).Script("SELECT "+strconv.Itoa(db), "+OK", "SET k 1", "+OK")
		}
		test(t, srv)
	}, "--databases", "100")
}

// The first bytes of a client may hold a SELECT that is refused at once, and commands behind it.
func TestTheFirstSelectIsRefusedWithWhatCameWithIt(t *testing.T) {
	t.Parallel()
	withoutLanes(t, func(t *testing.T, srv *proxytest.Proxy) {
		late := srv.Dial(t)
		late.Raw(proxytest.Inline("SELECT 50", "SET k 2"))
		late.Gets(noLane, noLane)
		late.Script("GET k", "$1\r\n1\r\n")
	}, func(*proxy.Options) {})
}

// A client that speaks TLS has sent each command in a record of its own. They are at the proxy together, but its TLS gives the session one at a time.
func TestASelectIsRefusedWithTheRecordsBehindIt(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	cert, err := tls.LoadX509KeyPair(a.Issue(t, "proxy"))
	if err != nil {
		t.Fatal(err)
	}
	withoutLanes(t, func(t *testing.T, srv *proxytest.Proxy) {
		late := proxytest.Dial(t, srv.Addrs()[1].String())
		together := &gathered{Conn: late.Conn}
		late.Conn = tls.Client(together, &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"})
		late.Script("GET k", "$1\r\n1\r\n")
		for range 2 {
			together.hold = true
			late.Raw(proxytest.Inline("SELECT 50"))
			together.hold = false
			late.Raw(proxytest.Inline("SET k 2"))
			late.Gets(noLane, noLane)
			late.Script("GET k", "$1\r\n1\r\n", "SELECT 50", noLane, "GET k", "$1\r\n1\r\n") // it waits for each reply
		}
	}, func(o *proxy.Options) {
		o.Listen = append(o.Listen, "tls:127.0.0.1:0")
		o.TLS = &tls.Config{Certificates: []tls.Certificate{cert}}
	})
}

// gathered is a connection that can hold back what is written, up to a later write.
type gathered struct {
	net.Conn
	hold bool
	held bytes.Buffer
}

func (g *gathered) Write(b []byte) (int, error) {
	if g.held.Write(b); g.hold {
		return len(b), nil
	}
	_, err := g.held.WriteTo(g.Conn)
	return len(b), err
}

// Redis is away when MULTI comes, and is there again for the commands behind it.
func TestNothingOfATransactionRunsAloneBehindAnOutage(t *testing.T) {
	t.Parallel()
	proxytest.EachEngine(t, func(t *testing.T, srv *proxytest.Proxy) {
		c, other := srv.Dial(t), srv.Dial(t)
		c.Script("SET k 1", "+OK")
		takeAway(t, srv.Redis, srv)
		c.Raw(proxytest.Inline("MULTI", "SET k 2"))
		c.Gets(proxytest.Unreachable, proxytest.Unreachable)
		srv.Redis.Restart()
		proxytest.WaitFor(t, "Redis to be there", func() bool { return other.Quiet("SET", "k", "3") == "+OK\r\n" })
		c.Raw(proxytest.Inline("SET k 4", "EXEC"))
		c.Gets(proxytest.Unreachable, proxytest.Unreachable)
		c.Script("GET k", "$1\r\n3\r\n")
		takeAway(t, srv.Redis, srv)
		c.Script("MULTI", proxytest.Unreachable) // it waits for the reply
		c.Raw(proxytest.Inline("MULTI", "SET k 5", "EXEC"))
		c.Gets(proxytest.Unreachable, proxytest.Unreachable, proxytest.Unreachable)
		srv.Redis.Restart()
		proxytest.WaitFor(t, "the client to be served", func() bool { return c.Quiet("SET", "k", "6") == "+OK\r\n" })
	})
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
