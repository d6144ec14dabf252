package redistest_test

import (
	"slices"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestSentinelsFailOver(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t, "--requirepass", "secret", "--masterauth", "secret")
	replicas := []*redistest.Server{redistest.StartReplica(t, primary), redistest.StartReplica(t, primary)}
	begin := time.Now()
	s := redistest.StartSentinels(t, 3, primary, replicas)
	t.Logf("Sentinels are ready after %v", time.Since(begin))
	if got := s.Primary(); got != primary {
		t.Fatalf("the Sentinels name %v, want %s", got, primary.Addr())
	}
	promoted := s.Failover()
	if !slices.Contains(replicas, promoted) {
		t.Fatalf("a planned failover leads to %s", promoted.Addr())
	}
	promoted.Do(t, "SET", "k", "v")
	promoted.Kill()
	s.All[0].Pause()
	if got := s.AwaitOther(promoted); !slices.Contains(replicas, got) && got != primary {
		t.Fatalf("after a crash the primary is %s", got.Addr())
	}
	s.All[0].Continue()
}

// A promotion closes the connections of Sentinels to the promoted server. They must be back before they find it down.
func TestAFailoverIsFollowedByNoOther(t *testing.T) {
	t.Parallel()
	primary := redistest.Start(t)
	replicas := []*redistest.Server{redistest.StartReplica(t, primary), redistest.StartReplica(t, primary)}
	s := redistest.StartSentinels(t, 3, primary, replicas, "failover-timeout 1000")
	for i := range 2 {
		promoted := s.Failover()
		redistest.Eventually(t, 20*time.Second, "the Sentinels to be ready again", s.Ready)
		if now := s.Primary(); now != promoted {
			t.Fatalf("failover %d made %s the primary, now it is %s", i+1, promoted.Addr(), now.Addr())
		}
	}
}

func TestClusterFailsOver(t *testing.T) {
	t.Parallel()
	begin := time.Now()
	c := redistest.StartCluster(t, 3, 1)
	t.Logf("the cluster is ready after %v", time.Since(begin))
	for i, slot := range []int{0, 8000, redistest.Slots - 1} {
		if got := c.Owner(slot); got != c.Nodes[i] {
			t.Fatalf("slot %d belongs to %v, want node %d", slot, got, i)
		}
	}
	c.Failover(c.Nodes[3])
	if got := c.Owner(0); got != c.Nodes[3] {
		t.Fatalf("after a failover slot 0 belongs to %v", got)
	}
	c.AwaitReady()
	for _, to := range []*redistest.Server{c.Nodes[1], c.Nodes[2], c.Nodes[3]} {
		from := c.Owner(99)
		from.Do(t, "SET", "{355}", "kept") // of slot 99, see below
		m := redistest.Move{Cluster: c, Slot: 99, From: from, To: to}
		m.Begin()
		m.Keys()
		m.End()
		if got := to.Do(t, "GET", "{355}"); got != "kept" {
			t.Fatalf("the key of a slot that has moved: %v", got)
		}
	}
	c.Nodes[1].Kill()
	redistest.Eventually(t, 20*time.Second, "the replica of a killed node to own its slots", func() bool { return c.Owner(8000) == c.Nodes[4] })
	c.Nodes[1].Restart()
	c.AwaitReady()
}
