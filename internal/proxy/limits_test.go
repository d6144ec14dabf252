package proxy_test

import (
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/certs"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// limited runs a proxy with these limits for each engine.
func limited(t *testing.T, limits proxy.Limits, test func(t *testing.T, srv *proxytest.Proxy)) {
	t.Helper()
	redisAddr := redistest.Start(t).Addr()
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			srv, _ := proxytest.Serve(t, proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisAddr}, Limits: limits, Engine: engine})
			test(t, srv)
		})
	}
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
	redistest.Eventually(t, 10*time.Second, "clients closed by "+reason+" to be counted", func() bool {
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
		first, silent := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
		first.Ask("PING")
		redistest.Eventually(t, 10*time.Second, "the silent client to count as well", func() bool { return srv.Stats().Clients == 2 })
		if got := closed(t, proxytest.Dial(t, address(srv, 0))); got != "-ERR max number of clients reached\r\n" {
			t.Errorf("%q", got)
		}
		expectClosed(t, srv, "max_clients", 1)
		silent.Conn.Close()
		redistest.Eventually(t, 10*time.Second, "the place to be free again", func() bool { return srv.Stats().Clients == 1 })
		if got := ask(t, address(srv, 0), "PING"); got != "+PONG\r\n" {
			t.Errorf("%q", got)
		}
	})
}

func TestRefusedTLSClientsHoldUpNobody(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	srv, _ := proxytest.Serve(t, proxy.Options{
		Listen: []string{"tls:127.0.0.1:0"}, Upstream: upstream.Options{Addr: redistest.Start(t).Addr()},
		TLS: serverTLS(t, a, certs.AuthNo), Limits: proxy.Limits{Clients: 1},
	})
	c := dialTLS(t, address(srv, 0), a, "")
	c.Ask("PING")
	for range 3 { // these say nothing: an answer in TLS would have to wait for them
		if got := closed(t, proxytest.Dial(t, address(srv, 0))); got != "" {
			t.Errorf("a refused client was told %q in the clear", got)
		}
	}
	expectClosed(t, srv, "max_clients", 3)
}

func TestQueryLimitClosesTheClient(t *testing.T) {
	t.Parallel()
	limited(t, proxy.Limits{Query: 1 << 20}, func(t *testing.T, srv *proxytest.Proxy) {
		// Nothing is parsed while the answer to a blocking command decides how the next ones travel.
		holder, c := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
		holder.Ask("LOCK " + t.Name())
		c.Raw(proxytest.Inline("LOCK " + t.Name()))
		redistest.Eventually(t, 10*time.Second, "the client to wait", func() bool { return srv.Stats().Waiting == 1 })
		_, _ = c.Conn.Write([]byte(strings.Repeat(string(resp.AppendCommand(nil, "GET", "k")), 100_000))) // it may be cut off
		closed(t, c)
		expectClosed(t, srv, "query_limit", 1)

		early := proxytest.Dial(t, address(srv, 0)) // its first command is not whole yet
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
		c := proxytest.Dial(t, address(srv, 0))
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

func TestFirstCommandMustComeInTime(t *testing.T) {
	t.Parallel()
	const limit = 1500 * time.Millisecond
	a := redistest.NewAuthority(t)
	redisAddr := redistest.Start(t).Addr()
	for _, engine := range engines {
		srv, _ := proxytest.Serve(t, proxy.Options{
			Listen: []string{"127.0.0.1:0", "tls:127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisAddr}, TLS: serverTLS(t, a, certs.AuthNo),
			Limits: proxy.Limits{FirstCommand: limit}, Engine: engine, ProxyProtocol: proxy.ProxyOptional,
		})
		active := proxytest.Dial(t, address(srv, 0))
		active.Ask("PING")
		begin := time.Now()
		silent, half := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
		if _, err := half.Conn.Write([]byte("*1\r\n$4\r\nPI")); err != nil {
			t.Fatal(err)
		}
		closed(t, half)
		closed(t, silent)
		// After the handshake TLS has what is left of the time.
		secure := dialTLS(t, address(srv, 1), a, "")
		if err := secure.Conn.(*tls.Conn).Handshake(); err != nil {
			t.Fatal(err)
		}
		closed(t, secure)
		if took := time.Since(begin); took > 9*time.Second { // the limit for handshakes is longer
			t.Errorf("closed after %s", took)
		}
		// The silent one was closed while a PROXY header could still come.
		redistest.Eventually(t, 10*time.Second, "the reasons to be counted", func() bool {
			got := srv.Stats().Closed
			return got["first_command"] == 2 && got["handshake"] == 1
		})
		if got := active.Ask("PING"); got != "+PONG\r\n" {
			t.Errorf("a client that had sent a command: %q", got)
		}
	}
}

func TestHandshakeMustEndInTime(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	srv, _ := proxytest.Serve(t, proxy.Options{
		Listen: []string{"tls:127.0.0.1:0"}, Upstream: upstream.Options{Addr: redistest.Start(t).Addr()}, TLS: serverTLS(t, a, certs.AuthNo),
		Limits: proxy.Limits{Handshake: 2 * time.Second},
	})
	silent, half := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
	if _, err := half.Conn.Write([]byte("\x16\x03\x01")); err != nil {
		t.Fatal(err)
	}
	c := dialTLS(t, address(srv, 0), a, "")
	if got := c.Ask("PING"); got != "+PONG\r\n" { // not held up by the others
		t.Errorf("PING: %q", got)
	}
	closed(t, silent)
	closed(t, half)
	expectClosed(t, srv, "handshake", 2)
	if got := c.Ask("PING"); got != "+PONG\r\n" { // the limit ended with the handshake
		t.Errorf("PING: %q", got)
	}
}

func TestPinsAreBoundedAndWaitedForAWhile(t *testing.T) {
	t.Parallel()
	srv, _ := proxytest.Serve(t, proxy.Options{
		Listen:   []string{"127.0.0.1:0"},
		Upstream: upstream.Options{Addr: redistest.Start(t).Addr(), Pins: upstream.PinLimits{Max: 1, Wait: 200 * time.Millisecond}},
	})
	holder, c := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
	holder.Ask("MULTI")
	if got := c.Ask("MULTI"); !strings.HasPrefix(got, "-OVERLOADED ") || !strings.Contains(got, "max-pins") {
		t.Errorf("MULTI: %q", got)
	}
	if got := c.Ask("PING"); got != "+PONG\r\n" {
		t.Errorf("an ordinary command afterwards: %q", got)
	}
	got := srv.Stats()
	if got.PinWaits != 1 || got.PinTimeouts != 1 || got.Refused["OVERLOADED"] != 1 || got.PinReasons["multi"] != 1 || got.PinsOpen != 1 {
		t.Errorf("%+v", got)
	}
	c.Raw(proxytest.Inline("MULTI"))
	redistest.Eventually(t, 10*time.Second, "the client to wait", func() bool { return srv.Stats().PinWaits == 2 })
	holder.Ask("DISCARD")
	if got := c.Next(); got != "+OK\r\n" && !strings.HasPrefix(got, "-OVERLOADED") { // the wait may be over already
		t.Errorf("MULTI: %q", got)
	}
}

func TestWaitersForLocksAreBoundedForAllClients(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	redisServer.Do(t, "ACL", "SETUSER", "other", "on", ">pw", "~*", "&*", "+@all")
	srv, _ := proxytest.Serve(t, proxy.Options{
		Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisServer.Addr()}, Locks: proxy.Locks{MaxWaiters: 1},
	})
	holder, waiter := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
	holder.Ask("LOCK k")
	waiter.Raw(proxytest.Inline("LOCK k"))
	redistest.Eventually(t, 10*time.Second, "the client to wait", func() bool { return srv.Stats().Waiting == 1 })
	for _, commands := range [][]string{{"LOCK k"}, {"AUTH other pw", "LOCK k"}} { // another user's waiters are no others
		if got := ask(t, address(srv, 0), commands...); got != "-OVERLOADED too many waiters (max-waiters)\r\n" {
			t.Errorf("%q: %q", commands, got)
		}
	}
	if got := srv.Stats(); got.Refused["OVERLOADED"] != 2 || got.Held != 1 {
		t.Errorf("%+v", got)
	}
}

// What Redis refuses for its size is refused here, in the same words and before it is read, whether it is a client's first
// command or a later one, before authentication and after.
func TestOversizedRequestsAreRefusedAsByRedis(t *testing.T) {
	t.Parallel()
	open := redistest.Start(t)
	guarded := redistest.Start(t, "--requirepass", "pw")
	tests := []struct {
		name, begin string
		auth        bool
	}{
		{"bulk", "*2\r\n$3\r\nGET\r\n$536870913\r\n", false},
		{"negative bulk", "*2\r\n$3\r\nGET\r\n$-1\r\n", false},
		{"arguments", "*2147483648\r\n", false},
		{"inline", strings.Repeat("x", 66_000), false},
		{"no bulk", "*1\r\n:1\r\n", false},
		{"arguments before AUTH", "*11\r\n", true},
		{"bulk before AUTH", "*2\r\n$4\r\nAUTH\r\n$16385\r\n", true},
	}
	for _, engine := range engines {
		for _, test := range tests {
			for _, first := range []string{"", "*1\r\n$4\r\nPING\r\n"} {
				t.Run(engine+" "+test.name, func(t *testing.T) {
					redisServer := open
					if test.auth {
						redisServer = guarded
					}
					opts := proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisServer.Addr()}, Engine: engine}
					if test.auth {
						opts.Upstream.Password = "pw"
					}
					srv, _ := proxytest.Serve(t, opts)
					var replies [2]string
					for i, addr := range []string{redisServer.Addr(), address(srv, 0)} {
						c := proxytest.Dial(t, addr)
						if _, err := c.Conn.Write([]byte(first + test.begin)); err != nil {
							t.Fatal(err)
						}
						replies[i] = closed(t, c)
					}
					if replies[0] != replies[1] || !strings.Contains(replies[0], "Protocol error") {
						t.Errorf("%q, Redis says %q", replies[1], replies[0])
					}
					expectClosed(t, srv, "protocol_error", 1)
				})
			}
		}
	}
}

func TestLimitsBeforeAuthenticationEndWithIt(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t, "--requirepass", "pw")
	srv, _ := proxytest.Serve(t, proxy.Options{Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisServer.Addr(), Password: "pw"}})
	c := proxytest.Dial(t, address(srv, 0))
	c.Ask("AUTH pw")
	if got := c.Ask("DEL" + strings.Repeat(" k", 20)); got != ":0\r\n" {
		t.Errorf("%q", got)
	}
}

// Commands that Redis does not take are not read without end: the client is slowed down, not closed.
func TestUnansweredCommandsAreBounded(t *testing.T) {
	t.Parallel()
	redisServer := redistest.Start(t)
	for _, engine := range engines {
		t.Run(engine, func(t *testing.T) {
			srv, _ := proxytest.Serve(t, proxy.Options{
				Listen: []string{"127.0.0.1:0"}, Upstream: upstream.Options{Addr: redisServer.Addr()}, Limits: proxy.Limits{Unanswered: 1 << 20}, Engine: engine,
			})
			c := proxytest.Dial(t, address(srv, 0))
			c.Ask("PING")
			command := resp.AppendCommand(nil, "SET", "k", strings.Repeat("v", 64<<10))
			redisServer.Pause()
			defer redisServer.Continue()
			if err := c.Conn.SetWriteDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
				t.Fatal(err)
			}
			sent := 0
			for sent < 256<<20 {
				n, err := c.Conn.Write(command)
				sent += n
				if err != nil {
					var timeout net.Error
					if !errors.As(err, &timeout) || !timeout.Timeout() {
						t.Fatal(err)
					}
					break
				}
			}
			if sent > 64<<20 { // the limit and what the sockets hold
				t.Errorf("%d MiB were taken while Redis answered nothing", sent>>20)
			}
			redisServer.Continue()
			if err := c.Conn.SetWriteDeadline(time.Now().Add(20 * time.Second)); err != nil {
				t.Fatal(err)
			}
			if rest := sent % len(command); rest > 0 {
				if _, err := c.Conn.Write(command[rest:]); err != nil {
					t.Fatal(err)
				}
			}
			for i := range (sent + len(command) - 1) / len(command) {
				if got := c.Next(); got != "+OK\r\n" {
					t.Fatalf("reply %d: %q", i, got)
				}
			}
		})
	}
}

// A subscriber that stays behind is closed, although nothing more is published.
func TestPubSubLimitClosesTheSubscriberOfAQuietChannel(t *testing.T) {
	t.Parallel()
	limits := proxy.Limits{PubSub: proxy.PubSub{Hard: 1 << 40, Soft: 1 << 20, SoftTime: time.Second}}
	limited(t, limits, func(t *testing.T, srv *proxytest.Proxy) {
		publisher, c := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
		c.Ask("SUBSCRIBE news")
		for range 16 { // more than sockets hold
			publisher.Ask("PUBLISH news " + strings.Repeat("m", 1<<20))
		}
		redistest.Eventually(t, 30*time.Second, "the subscriber to be closed", func() bool { return srv.Stats().Closed["pubsub_limit"] > 0 })
		expectClosed(t, srv, "pubsub_limit", 1)
	})
}

// Subscribers have limits of their own, the smaller one for as long as it is exceeded.
func TestPubSubLimitClosesTheSubscriberThatDoesNotRead(t *testing.T) {
	t.Parallel()
	for _, test := range []proxy.PubSub{{Hard: 4 << 20}, {Hard: 1 << 40, Soft: 1 << 20, SoftTime: time.Second}} {
		limited(t, proxy.Limits{PubSub: test}, func(t *testing.T, srv *proxytest.Proxy) {
			publisher, c, reads := proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0)), proxytest.Dial(t, address(srv, 0))
			c.Ask("SUBSCRIBE news")
			reads.Ask("SUBSCRIBE news")
			message := "PUBLISH news " + strings.Repeat("m", 1<<20)
			redistest.Eventually(t, 30*time.Second, "the subscriber to be closed", func() bool {
				publisher.Ask(message)
				reads.Next()
				return srv.Stats().Closed["pubsub_limit"] > 0
			})
			expectClosed(t, srv, "pubsub_limit", 1)
			if got := publisher.Ask("PING"); got != "+PONG\r\n" {
				t.Errorf("another client: %q", got)
			}
		})
	}
}
