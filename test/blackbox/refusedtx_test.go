package blackbox

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

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
