package failover

import (
	"bytes"
	"errors"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A network, or a Redis, that damages bytes costs connections. Each command is answered, or its connection closes, and
// the proxy serves all clients and locks when the damage has ended.
func TestDamagedRepliesCostConnectionsOnly(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	link := redistest.StartRelay(t, redis.Addr())
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.Addr = link.Addr() })
	for i, bad := range []string{
		"*9223372036854775807\r\n", "$9223372036854775806\r\n", "*-2\r\n", "-MOVED 1 1.2.3.4:5\r\n", "+OK\r\n", ">0\r\n",
		">3\r\n$9\r\nsubscribe\r\n$1\r\nx\r\n:1\r\n", "\x00",
	} {
		var damaged atomic.Int32
		link.Damage(func(chunk []byte) []byte {
			switch n := damaged.Add(1); {
			case n > 2 || len(chunk) == 0:
				return chunk
			case i%4 == 0:
				return []byte(bad)
			case i%4 == 1:
				return append([]byte(bad), chunk...)
			case i%4 == 2:
				return append(bytes.Clone(chunk), bad...)
			}
			return append(bytes.Clone(chunk[:len(chunk)-1]), bad...)
		})
		var clients []*proxytest.Client
		for _, line := range []string{"GET k", "LOCK k PX 1000", "HELLO 3", "SUBSCRIBE ch", "BLPOP none 0.01"} {
			c := srv.Dial(t)
			c.Raw(proxytest.Inline(line))
			clients = append(clients, c)
		}
		proxytest.WaitFor(t, "the damage", func() bool { return damaged.Load() > 2 })
		link.Damage(nil)
		link.Reset() // what the damage has left waiting
		for _, c := range clients {
			if _, err := c.Frame(); errors.Is(err, proxytest.ErrTimeout) {
				t.Errorf("%q: a command is not answered, and its connection is open", bad)
			}
			_ = c.Conn.Close()
		}
		proxytest.Recovers(t, srv)
	}
	redis.Do(t, "FLUSHALL")
	proxytest.WaitFor(t, "locks to be served", func() bool {
		c := srv.Dial(t)
		defer c.Conn.Close()
		return c.Quiet("TRYLOCK", "k")[0] == ':' && c.Quiet("UNLOCK", "k") == ":1\r\n"
	})
}
