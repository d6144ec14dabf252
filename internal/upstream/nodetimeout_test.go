package upstream

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// The lease of locks is compared with the timeout of the nodes at the start, and when one of the two changes.
func TestALeaseThatAFailoverOfAClusterMayOutlastIsReported(t *testing.T) {
	c := redistest.StartCluster(t, 1, 0, "--cluster-node-timeout", "15000") // Redis's default
	core, logs := observer.New(zap.WarnLevel)
	u := start(t, Options{Addr: "cluster://" + c.Addrs(), Lease: 30 * time.Second, Logger: zap.New(core), authPeriod: 10 * time.Millisecond})
	warnings := func() int { return logs.FilterMessageSnippet("a failover may take longer than the lease").Len() }
	redistest.Eventually(t, 10*time.Second, "the time of a failover", func() bool { return u.Failover() == 18*time.Second })
	if n := warnings(); n != 0 {
		t.Errorf("%d warnings for the defaults", n)
	}
	u.Lease(20 * time.Second)
	if n := warnings(); n != 1 {
		t.Errorf("%d warnings for a short lease", n)
	}
	u.Lease(30 * time.Second)
	c.Nodes[0].Do(t, "CONFIG", "SET", "cluster-node-timeout", "60000")
	redistest.Eventually(t, 10*time.Second, "a warning of the new timeout", func() bool { return warnings() == 2 })
	if got := u.Failover(); got != 63*time.Second {
		t.Errorf("a failover takes %v", got)
	}
}
