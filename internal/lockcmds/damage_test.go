package lockcmds

import (
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// hands is a clock that a test moves.
type hands struct {
	jobs.System
	now time.Time
}

func (h *hands) Now() time.Time { return h.now }

func TestDamageIsCountedAlwaysAndLoggedNowAndThen(t *testing.T) {
	core, entries := observer.New(zap.WarnLevel)
	h, repaired := &hands{now: time.Unix(1000, 0)}, 0
	r := damageReporter{
		Clock: h, Logger: zap.New(core), Repaired: func() { repaired++ }, Servers: func() (s script.Servers) { return s },
	}
	r.Note("k", script.NoDamage)
	for range 3 {
		r.Note("k", script.CounterReplaced)
	}
	if repaired != 3 || entries.Len() != 1 {
		t.Errorf("%d repaired, %d entries", repaired, entries.Len())
	}
	h.now = h.now.Add(period)
	r.Note("k", script.NoQueue)
	if repaired != 3 || entries.Len() != 2 {
		t.Errorf("%d repaired, %d entries", repaired, entries.Len())
	}
	for _, e := range entries.All() {
		if e.ContextMap()["key"] != "k" {
			t.Errorf("%s: %v", e.Message, e.ContextMap())
		}
	}
}
