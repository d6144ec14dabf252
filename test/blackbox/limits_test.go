package blackbox

import (
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// limited runs a test of a proxy with these limits.
func limited(t *testing.T, limits proxy.Limits, test func(t *testing.T, srv *proxytest.Proxy)) {
	t.Helper()
	test(t, proxytest.Start(t, redistest.Start(t), func(o *proxy.Options) { o.Limits = limits }))
}

// closed reads what is left and demands that the other side has closed the connection.
func closed(t *testing.T, c *proxytest.Client) string {
	t.Helper()
	if err := c.Conn.SetReadDeadline(time.Now().Add(2 * proxytest.Patience)); err != nil {
		t.Fatal(err)
	}
	b, err := io.ReadAll(c.Conn)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal("the connection was not closed")
	}
	return string(append(c.Buf, b...))
}

// expectClosed demands that n clients have been closed for this reason, and none for another.
func expectClosed(t *testing.T, srv *proxytest.Proxy, reason string, n int64) {
	t.Helper()
	proxytest.WaitFor(t, "clients closed by "+reason+" to be counted", func() bool {
		return srv.Stats().Closed[reason] == n
	})
	for other, got := range srv.Stats().Closed {
		if other != reason && got != 0 {
			t.Errorf("%d clients are counted as closed by %s", got, other)
		}
	}
}

func TestClientsOverTheLimitAreRefusedInRedisWords(t *testing.T) {
	t.Parallel()
	limited(t, proxy.Limits{Clients: 2}, func(t *testing.T, srv *proxytest.Proxy) {
		first, silent := srv.Dial(t), srv.Dial(t)
		first.Ask("PING")
		proxytest.WaitFor(t, "the silent client to count as well", func() bool { return srv.Stats().Clients == 2 })
		if got := closed(t, srv.Dial(t)); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("%q", got)
		}
		expectClosed(t, srv, "max_clients", 1)
		silent.Conn.Close()
		proxytest.WaitFor(t, "the place to be free again", func() bool { return srv.Stats().Clients == 1 })
		srv.Dial(t).Script("PING", "+PONG")
	})
}

func TestRefusedTLSClientsHoldUpNobody(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS, func(o *proxy.Options) { o.Limits.Clients = 1 })
	c := dialTLS(t, srv)
	c.Ask("PING")
	for range 3 { // these say nothing: an answer in TLS would have to wait for them
		if got := closed(t, proxytest.Dial(t, tlsAddr(srv))); got != "" {
			t.Errorf("a refused client was told %q in the clear", got)
		}
	}
	expectClosed(t, srv, "max_clients", 3)
}

func TestQueryLimitClosesTheClient(t *testing.T) {
	t.Parallel()
	limited(t, proxy.Limits{Query: 1 << 20}, func(t *testing.T, srv *proxytest.Proxy) {
		// Nothing is parsed while the answer to a blocking command decides how the next ones travel.
		holder, c := srv.Dial(t), srv.Dial(t)
		holder.Ask("LOCK " + t.Name())
		c.Raw(proxytest.Inline("LOCK " + t.Name()))
		proxytest.WaitFor(t, "the client to wait", func() bool { return srv.Stats().Waiting == 1 })
		_, _ = c.Conn.Write([]byte(strings.Repeat(string(resp.AppendCommand(nil, "GET", "k")), 100_000))) // it may be cut off
		closed(t, c)
		expectClosed(t, srv, "query_limit", 1)

		early := srv.Dial(t) // its first command is not whole yet
		_, _ = early.Conn.Write(resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 2<<20)))
		closed(t, early)
		expectClosed(t, srv, "query_limit", 2)
		holder.Ask("PING")
	})
}

// What a client has taken does not count.
func TestClientThatReadsMayHaveAsMuchAsItWants(t *testing.T) {
	t.Parallel()
	limited(t, proxy.Limits{Output: 1 << 20}, func(t *testing.T, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		value := strings.Repeat("v", 100_000)
		c.Ask("SET k " + value)
		for range 50 {
			if got := c.Ask("GET k"); len(got) < len(value) {
				t.Fatalf("%.50q", got)
			}
		}
		expectClosed(t, srv, "output_limit", 0)
	})
}

func TestHandshakeMustEndInTime(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS, func(o *proxy.Options) { o.Limits.Handshake = 2 * time.Second })
	silent, half := proxytest.Dial(t, tlsAddr(srv)), proxytest.Dial(t, tlsAddr(srv))
	if _, err := half.Conn.Write([]byte("\x16\x03\x01")); err != nil {
		t.Fatal(err)
	}
	c := dialTLS(t, srv)
	c.Script("PING", "+PONG") // not held up by the others
	closed(t, silent)
	closed(t, half)
	expectClosed(t, srv, "handshake", 2)
	c.Script("PING", "+PONG") // the limit ended with the handshake
}

// Commands that Redis does not take are not read without end: the client is slowed down, not closed.
func TestUnansweredCommandsAreBounded(t *testing.T) {
	t.Parallel()
	limited(t, proxy.Limits{Unanswered: 1 << 20}, func(t *testing.T, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		c.Ask("PING")
		command := resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 64<<10))
		srv.Redis.Pause()
		sent := pour(t, c.Conn, command, 256<<20)
		if sent > 64<<20 { // the limit and what the sockets hold
			t.Errorf("%d MiB were taken while Redis answered nothing", sent>>20)
		}
		srv.Redis.Continue()
		if rest := sent % len(command); rest > 0 {
			if _, err := c.Conn.Write(command[rest:]); err != nil {
				t.Fatal(err)
			}
		}
		for range (sent + len(command) - 1) / len(command) {
			c.Gets("+OK")
		}
	})
}

// Subscribers have limits of their own, the smaller one for as long as it is exceeded.
func TestPubSubLimitClosesTheSubscriberThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for _, test := range []proxy.PubSub{{Hard: 4 << 20}, {Hard: 1 << 40, Soft: 1 << 20, SoftTime: time.Second}} {
		limited(t, proxy.Limits{PubSub: test}, func(t *testing.T, srv *proxytest.Proxy) {
			publisher, c, reads := srv.Dial(t), srv.Dial(t), srv.Dial(t)
			c.Ask("SUBSCRIBE news")
			reads.Ask("SUBSCRIBE news")
			message := "PUBLISH news " + strings.Repeat("m", 1<<20)
			redistest.Eventually(t, 30*time.Second, "the subscriber to be closed", func() bool {
				publisher.Ask(message)
				reads.Next()
				return srv.Stats().Closed["pubsub_limit"] > 0
			})
			expectClosed(t, srv, "pubsub_limit", 1)
			publisher.Script("PING", "+PONG")
		})
	}
}

// neighbours are clients with a command every now and then. They must not lose their connections.
func neighbours(t *testing.T, addr string, n int) (end func()) {
	t.Helper()
	var all proxytest.Meanwhile
	for range n {
		c := proxytest.Dial(t, addr)
		c.Quiet("SET", "n", "v")
		all.Go(func(int) bool {
			<-time.After(time.Millisecond)
			_, broken := c.Conn.Write(resp.AppendCommand(nil, "GET", "n"))
			b, err := c.Frame()
			if broken != nil || err != nil || b != "$1\r\nv\r\n" {
				t.Errorf("a neighbour got %q, %v, %v", b, broken, err)
				return false
			}
			return true
		})
	}
	return all.End
}

// Redis closes the connection of a client whose argument or query buffer is too long. It is the connection of that client alone.
func TestTheInputLimitsOfRedisConcernTheirClientOnly(t *testing.T) {
	t.Parallel()
	for name, setting := range map[string]string{"argument": "proto-max-bulk-len", "buffer": "client-query-buffer-limit"} {
		t.Run(name, func(t *testing.T) {
			srv := proxytest.Start(t, redistest.Start(t, "--"+setting, "1mb"))
			proxytest.WaitFor(t, "the limits to be known", func() bool {
				return min(srv.Shared().Upstream.MaxArgument(), 4*srv.Shared().Upstream.MaxShared()) == 1<<20
			})
			end := neighbours(t, srv.Addr(), 8)
			for _, size := range []int{1<<20 + 1, 1500 << 10, 3 << 20} {
				for _, command := range []string{"SET", "APPEND", "EVAL"} {
					c := srv.Dial(t)
					c.Side = &proxytest.Side{T: t}
					words := []string{command, "big", strings.Repeat("x", size)}
					if command == "EVAL" {
						words = []string{command, "return 1", "0", words[2]}
					}
					c.Raw(string(resp.AppendCommand(nil, words...)))
					got, _ := c.Frame()
					rest, _ := io.ReadAll(c.Conn)
					if want := map[string]string{"argument": "-ERR Protocol error: invalid bulk length\r\n"}[name]; got != want || len(rest) > 0 {
						t.Errorf("%s of %d bytes: %.60q %.60q, want %q", command, size, got, rest, want)
					}
				}
			}
			// Commands below the limits are served, also many at a time.
			for _, size := range []int{200 << 10, 600 << 10, 1000 << 10} {
				c := srv.Dial(t)
				one := string(resp.AppendCommand(nil, "SET", "below", strings.Repeat("x", size)))
				go func() { _, _ = io.WriteString(c.Conn, strings.Repeat(one, 20)) }()
				for i := range 20 {
					if b, err := c.Frame(); b != "+OK\r\n" {
						t.Fatalf("SET %d of %d bytes: %q, %v", i, size, b, err)
					}
				}
			}
			c := srv.Dial(t)
			c.Script("LOCK short", ":")
			end()
		})
	}
}

// The connection of a large command closes while the command is sent on, wherever Redis stops to read it. As from Redis, the client gets the replies so
// far, and no word about the command.
func TestALargeCommandBeyondTheQueryBufferLimitClosesItsClient(t *testing.T) {
	t.Parallel()
	for limit, sizes := range map[string][]int{"1mb": {4 << 20, 5 << 20, 20 << 20}, "8mb": {9 << 20, 20 << 20}} {
		t.Run(limit, func(t *testing.T) {
			srv := proxytest.Start(t, redistest.Start(t, "--client-query-buffer-limit", limit))
			for i := range 3 {
				for _, size := range sizes {
					for name, addr := range map[string]string{"direct": srv.Redis.Addr(), "through the proxy": srv.Addr()} {
						c := proxytest.Dial(t, addr)
						c.Do("PING")
						c.Side = &proxytest.Side{T: t}
						command := resp.AppendCommand(resp.AppendCommand(nil, "PING"), "SET", "big", strings.Repeat("x", size))
						_, _ = c.Conn.Write(command) // it may fail when the connection closes
						got, _ := io.ReadAll(c.Conn)
						if s := string(got); s != "" && s != "+PONG\r\n" { // bytes in front of a reset may get lost
							t.Errorf("%d: SET of %d bytes, %s: %.80q", i, size, name, got)
						}
					}
				}
			}
			c := srv.Dial(t)
			c.Script("PING", "+PONG")
		})
	}
}
