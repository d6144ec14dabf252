package lockcmds

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// This file tells operators of foreign values that the lock scripts have found in keys beside the locks.

// period is the least time between two log entries, because damage may be done all the time.
const period = time.Second

// damageReporter logs damage. Its methods may be called from any goroutine.
type damageReporter struct {
	Clock    jobs.Clock
	Logger   *zap.Logger
	Repaired func()                // counts repaired fence counters; nil: nothing counts them
	Servers  func() script.Servers // what the scripts must know of them; required

	logged atomic.Int64 // Unix time in ns of the latest entry
}

// Note logs and counts the damage that the answer of an acquire or a release has found.
func (r *damageReporter) Note(key string, found script.Damage) {
	if found == script.NoDamage {
		return
	}
	if r.Repaired != nil && found == script.CounterReplaced {
		r.Repaired()
	}
	now := r.Clock.Now().UnixNano()
	if last := r.logged.Load(); now-last < int64(period) || !r.logged.CompareAndSwap(last, now) {
		return
	}
	lock := logging.Text("key", key)
	switch found {
	case script.NoDamage:
	case script.CounterReplaced:
		r.Logger.Warn("the fence counter held no possible fence and was set to Redis's time",
			zap.String("counter", script.FenceOf(key, r.Servers().Slots)), lock)
	case script.NoQueue:
		r.Logger.Warn("the key of the fair queue has another type and counts as an empty queue", logging.Text("queue", script.Queue(key)), lock)
	}
}
