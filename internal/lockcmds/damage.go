package lockcmds

import (
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// Keys beside the locks are shared with every user that may lock, and with Redisson's clients. A foreign value there must not stop a
// lock command; the script reports it in a fourth number of its answer.
const (
	counterReplaced = 1 // the fence counter held what cannot have been a fence
	noQueue         = 2 // the key of the fair queue holds something else
)

// damageLogPeriod is the least time between two log entries about damage, because damage may be done all the time.
const damageLogPeriod = time.Second

// damage tells operators of the damage that scripts have found.
type damage struct {
	logged atomic.Int64 // Unix time in ns of the latest line
}

// note logs and counts the damage that the answer of an acquire or a release reports.
func (e *Engine) note(key string, a answer) {
	if len(a) < 4 || a[3] == 0 {
		return
	}
	if f := e.opts.Events.Repaired; f != nil && a[3] == counterReplaced {
		f()
	}
	now := e.clock.Now().UnixNano()
	if last := e.damage.logged.Load(); now-last < int64(damageLogPeriod) || !e.damage.logged.CompareAndSwap(last, now) {
		return
	}
	switch a[3] {
	case counterReplaced:
		e.log.Warn("the fence counter held what cannot be a fence, and was set to Redis's time", zap.String("counter", fenceKey), logKey(key))
	case noQueue:
		e.log.Warn("the key of the fair queue holds something else, and is taken for no queue", zap.String("queue", queueOf(key)), logKey(key))
	}
}
