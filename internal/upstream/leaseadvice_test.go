package upstream

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestALeaseThatAFailoverMayOutlastIsReported(t *testing.T) {
	for _, c := range []struct {
		lease, downAfter time.Duration
		warns            int
	}{
		{30 * time.Second, time.Second, 0},
		{30 * time.Second, 17 * time.Second, 0},
		{30 * time.Second, 30 * time.Second, 1}, // Redis's sample
		{5 * time.Second, time.Second, 1},
		{5 * time.Second, 0, 0}, // there is no failover
		{0, time.Hour, 0},       // there are no locks
	} {
		core, logs := observer.New(zap.WarnLevel)
		w := &leaseWarner{lease: c.lease, log: zap.New(core)}
		for range 2 { // the same again is no change
			w.DownAfter(c.downAfter)
			w.Lease(c.lease)
		}
		if logs.Len() != c.warns {
			t.Errorf("lease %v, down after %v: %d warnings, want %d", c.lease, c.downAfter, logs.Len(), c.warns)
		}
	}
}

// The lease of locks is compared with the timeout of the nodes at the start, and when one of the two changes.
func TestALeaseThatAFailoverOfAClusterMayOutlastIsReported(t *testing.T) {
	c := redistest.StartCluster(t, 1, 0, "--cluster-node-timeout", "15000") // Redis's default
	core, logs := observer.New(zap.WarnLevel)
	u := start(t, Options{Addr: "cluster://" + c.Addrs(), Lease: 30 * time.Second, Logger: zap.New(core), lookPeriod: 10 * time.Millisecond})
	warnings := func() int { return logs.FilterMessageSnippet("a failover may take longer than the lease").Len() }
	u.Lease(20 * time.Second)
	redistest.Eventually(t, 10*time.Second, "a warning of the short lease", func() bool { return warnings() > 0 })
	u.Lease(30 * time.Second)
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings: one for the defaults, too", n)
	}
	c.Nodes[0].Do(t, "CONFIG", "SET", "cluster-node-timeout", "60000")
	redistest.Eventually(t, 10*time.Second, "a warning of the new timeout", func() bool { return warnings() == 2 })
}
