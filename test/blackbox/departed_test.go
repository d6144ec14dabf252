package blackbox

import (
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

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
