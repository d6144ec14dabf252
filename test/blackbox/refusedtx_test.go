package blackbox

import (
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// noLane refuses a change of the database at once.
const noLane = "-OVERLOADED no connection to share is free for this identity, nothing was sent\r\n"

// withoutLanes runs a test with a proxy that has all lanes that it may have. In database 0 k is 1.
func withoutLanes(t *testing.T, test func(t *testing.T, srv *proxytest.Proxy), change func(*proxy.Options)) {
	redis := redistest.Start(t, "--databases", "100")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.ClientAuth, o.Upstream.MaxLanes = proxy.AuthProxy, 8 }, change)
	for db := range 7 {
		srv.Dial(t).Script("SELECT "+strconv.Itoa(db), "+OK", "SET k 1", "+OK")
	}
	test(t, srv)
}

// The first bytes of a client may hold a SELECT that is refused at once, and commands behind it.
func TestTheFirstSelectIsRefusedWithWhatCameWithIt(t *testing.T) {
	t.Parallel()
	withoutLanes(t, func(t *testing.T, srv *proxytest.Proxy) {
		late := srv.Dial(t)
		late.Raw(proxytest.Inline("SELECT 50", "SET k 2"))
		late.Gets(noLane)
		late.Ends()
		srv.Dial(t).Script("GET k", "$1\r\n1\r\n")
	}, func(*proxy.Options) {})
}

// Redis is away when MULTI, or SELECT, comes, and is there again for the commands behind it: they wait with it, or end with
// it.
func TestNothingOfATransactionRunsAloneBehindAnOutage(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c, late, other := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	c.Script("SET k 1", "+OK")
	late.Script("GET k", "$1\r\n1\r\n")
	takeAway(t, srv.Redis, srv)
	c.Raw(proxytest.Inline("MULTI", "SET k 2"))
	late.Raw(proxytest.Inline("SELECT 1", "SET k 2"))
	c.Ends()
	late.Ends()
	c = srv.Dial(t)
	other.Send("GET", "k") // may wait for the restart, or end
	srv.Redis.Restart()
	proxytest.Recovers(t, srv)
	c.Script("GET k", "$-1", "SELECT 1", "+OK", "GET k", "$-1")
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
