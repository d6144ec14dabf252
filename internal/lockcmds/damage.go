package lockcmds

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/script"
)

// damageLogPeriod is the least time between two log entries about damage, because damage may be done all the time.
const damageLogPeriod = time.Second

// damage tells operators of the damage that scripts have found.
type damage struct {
	logged atomic.Int64 // Unix time in ns of the latest line
}

// note logs and counts the damage that the answer of an acquire or a release has found.
func (e *Engine) note(key string, found script.Damage) {
	if found == script.NoDamage {
		return
	}
	if f := e.opts.Events.Repaired; f != nil && found == script.CounterReplaced {
		f()
	}
	now := e.clock.Now().UnixNano()
	if last := e.damage.logged.Load(); now-last < int64(damageLogPeriod) || !e.damage.logged.CompareAndSwap(last, now) {
		return
	}
	switch found {
	case script.NoDamage:
	case script.CounterReplaced:
		e.log.Warn("the fence counter held no possible fence and was set to Redis's time", zap.String("counter", script.FenceKey), logKey(key))
	case script.NoQueue:
		e.log.Warn("the key of the fair queue has another type and counts as an empty queue", zap.String("queue", script.QueueOf(key)), logKey(key))
	}
}
