package redistest_test

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

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
