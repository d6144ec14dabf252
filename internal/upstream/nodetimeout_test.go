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

// Nodes may have different timeouts. The longest one counts, and is reported once.
func TestTimeoutsThatDifferAreReportedOnce(t *testing.T) {
	c := redistest.StartCluster(t, 3, 0, "--cluster-node-timeout", "15000")
	core, logs := observer.New(zap.WarnLevel)
	u := start(t, Options{Addr: "cluster://" + c.Addrs(), Lease: 30 * time.Second, Logger: zap.New(core), authPeriod: 5 * time.Millisecond})
	asked := func() (all int) {
		for _, node := range c.Nodes {
			all += node.Info(t, "commandstats", "cmdstat_config|get:calls=")
		}
		return all
	}
	c.Nodes[1].Do(t, "CONFIG", "SET", "cluster-node-timeout", "60000")
	redistest.Eventually(t, 10*time.Second, "the longest time", func() bool { return u.Failover() == 63*time.Second })
	before := asked()
	redistest.Eventually(t, 10*time.Second, "more questions", func() bool { return asked() > before+60 })
	if n := logs.FilterMessageSnippet("a failover may take longer than the lease").Len(); n != 1 {
		t.Errorf("%d warnings", n)
	}
	c.Nodes[1].Do(t, "CONFIG", "SET", "cluster-node-timeout", "15000")
	redistest.Eventually(t, 10*time.Second, "a shorter time", func() bool { return u.Failover() == 18*time.Second })
	// drainingServers that do not answer hold up nothing else for long that the proxy has to look at.
	asker := &asker{Dialer: u.dialer, Own: u.Own()}
	nodes := u.primaries()
	for _, node := range c.Nodes {
		node.Pause()
	}
	begin := time.Now()
	asker.NodeTimeout(t.Context(), nodes, func(Node) bool { return false })
	if took := time.Since(begin); took > u.opts.DialTimeout {
		t.Errorf("three servers that do not answer take %v", took)
	}
	for _, node := range c.Nodes {
		node.Continue()
	}
}
