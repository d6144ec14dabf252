package upstream

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
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
		w := newLeaseWarner(c.lease, zap.New(core))
		for range 2 { // the same again is no change
			w.DownAfter(c.downAfter)
			w.Lease(c.lease)
		}
		if logs.Len() != c.warns {
			t.Errorf("lease %v, down after %v: %d warnings, want %d", c.lease, c.downAfter, logs.Len(), c.warns)
		}
	}
}

func TestAChangeIsComparedAgain(t *testing.T) {
	core, logs := observer.New(zap.WarnLevel)
	w := newLeaseWarner(30*time.Second, zap.New(core))
	w.DownAfter(time.Second)
	w.Lease(time.Second)
	if logs.Len() != 1 {
		t.Errorf("%d warnings after a shorter lease", logs.Len())
	}
	w.Lease(20 * time.Second)
	w.DownAfter(time.Minute)
	if logs.Len() != 2 {
		t.Errorf("%d warnings after a longer time", logs.Len())
	}
}
