package failover

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// One of the Sentinels dies. The others say where the primary is.
func TestADeadSentinelIsReportedOnce(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
	core, logs := observer.New(zap.InfoLevel)
	srv := proxytest.Start(t, primary, func(o *proxy.Options) {
		o.Upstream.Addr, o.Logger, o.Upstream.Lease = s.URL(), zap.New(core), 30*time.Second
	})
	p := srv.Dial(t)
	p.Script("SET x 1", "+OK")
	tooLong := func() int { return logs.FilterMessageSnippet("a failover may take longer than the lease").Len() }
	s.SetDownAfter(time.Minute)
	proxytest.WaitFor(t, "a warning of the time that a failover takes now", func() bool { return tooLong() > 0 })
	s.SetDownAfter(redistest.DownAfter)
	s.All[0].Kill()
	s.Failover()
	proxytest.WaitFor(t, "the new primary", func() bool { return srv.Stats().Moves == 1 })
	proxytest.WaitFor(t, "a write", func() bool { return p.Quiet("SET", "x", "2") == "+OK\r\n" })
	unreached := func() int { return logs.FilterMessage("a sentinel cannot be reached").Len() }
	proxytest.WaitFor(t, "an entry about the dead Sentinel", func() bool { return unreached() > 0 }) // the failover may end before it
	if n := unreached(); n != 1 {
		t.Errorf("%d entries about the dead Sentinel", n)
	}
	if n := tooLong(); n != 1 {
		t.Errorf("%d warnings of one change", n)
	}
}
