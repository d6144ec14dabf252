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
		{0, time.Hour, 0}, // there are no locks
	} {
		core, logs := observer.New(zap.WarnLevel)
		(&Options{Lease: c.lease, Logger: zap.New(core)}).weigh(c.downAfter)
		if logs.Len() != c.warns {
			t.Errorf("lease %v, down after %v: %d warnings, want %d", c.lease, c.downAfter, logs.Len(), c.warns)
		}
	}
}
