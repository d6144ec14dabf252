package proxy

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// The Sentinel of the configuration dies. The others, of which it has told, are followed from then on.
func TestSentinelsThatTheConfigurationDoesNotNameAreAsked(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replica := redistest.StartReplica(t, primary)
	s := redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
	core, logs := observer.New(zap.InfoLevel)
	srv := startProxy(t, primary, func(o *Options) {
		o.Upstream.Addr, o.Logger, o.Upstream.Lease = "sentinel://"+s.All[0].Addr()+"/"+s.Name, zap.New(core), 30*time.Second
	})
	p := dialClient(t, address(srv))
	if got := p.quiet("SET", "x", "1"); got != "+OK\r\n" {
		t.Fatalf("SET: %q", got)
	}
	redistest.Eventually(t, patience, "the other Sentinels to be asked", func() bool {
		return logs.FilterMessageSnippet("another sentinel is asked").Len() == 2
	})
	tooLong := func() int { return logs.FilterMessageSnippet("a failover may take longer than the lease").Len() }
	s.SetDownAfter(time.Minute)
	redistest.Eventually(t, patience, "a warning of the time that a failover takes now", func() bool { return tooLong() > 0 })
	s.SetDownAfter(redistest.DownAfter)
	redistest.Eventually(t, patience, "the time of before", func() bool { return srv.shared.Upstream.Failover() < time.Minute })
	s.All[0].Kill()
	s.Failover()
	redistest.Eventually(t, patience, "the new primary", func() bool { return srv.shared.Upstream.Moves() == 1 })
	redistest.Eventually(t, patience, "a write", func() bool { return p.quiet("SET", "x", "2") == "+OK\r\n" })
	unreached := func() int { return logs.FilterMessage("a sentinel cannot be reached").Len() }
	redistest.Eventually(t, patience, "an entry about the dead Sentinel", func() bool { return unreached() > 0 }) // the failover may end before it
	if n := unreached(); n != 1 {
		t.Errorf("%d entries about the dead Sentinel", n)
	}
	if n := tooLong(); n != 1 {
		t.Errorf("%d warnings of one change", n)
	}
}
