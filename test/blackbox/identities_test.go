package blackbox

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// One client that walks through all databases leaves few connections behind.
func TestWalkThroughDatabases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "1000")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes, o.Upstream.Pins.Max, o.MaxEngines = 64, 20, 8 })
	c := srv.Dial(t)
	for db := range 200 {
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
		c.Gets("+OK", "+OK", "+OK", "*0", ":", ":1")
	}
	if n := srv.Stats().Lanes; n > 8 {
		t.Errorf("%d lanes", n)
	}
	if s := srv.Stats(); s.PinsOpen > 16 {
		t.Errorf("%d pins", s.PinsOpen)
	}
	proxytest.WaitFor(t, "the connections to be few", func() bool {
		return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "\n") < 60
	})
}

// Over the limit of lanes a client is told so, another address still gets one, and nothing hangs.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Upstream.MaxLanes = 8 })
	var residents []*proxytest.Client
	for db := 1; db <= 6; db++ {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("SELECT "+strconv.Itoa(db), "SET k v"))
		c.Gets("+OK", "+OK")
		residents = append(residents, c)
	}
	const full = "-OVERLOADED no connection to share is free for this identity"
	late := srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 50", "SET k v")) // SET is not for the database of before
	late.Gets(full)
	late.Ends()
	late = srv.Dial(t)
	late.Raw(proxytest.Inline("SELECT 3", "GET k", "MULTI", "SELECT 50", "EXEC"))
	late.Gets("+OK", "$1", "+OK", "+QUEUED", "*1")
	late.Raw(proxytest.Inline("GET k", "SELECT 0", "PING")) // EXEC's own connection serves nothing more
	late.Gets(full, "+OK", "+PONG")
	other := proxytest.DialFrom(t, "127.0.0.2", srv.Addr())
	other.Raw(proxytest.Inline("SELECT 50", "SET k v"))
	other.Gets("+OK", "+OK")
	_ = residents[0].Conn.Close() // its lane is not used any more
	proxytest.WaitFor(t, "the lane to be given up", func() bool {
		late = srv.Dial(t)
		late.Send("SELECT", "51")
		got, err := late.Frame()
		return err == nil && got == "+OK\r\n"
	})
	late.Send("SET", "k", "v")
	late.Gets("+OK")
}
