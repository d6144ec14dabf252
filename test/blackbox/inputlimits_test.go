package blackbox

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

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
