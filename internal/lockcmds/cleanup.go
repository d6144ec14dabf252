package lockcmds

import (
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"
)

// orphan is a hold whose last session has ended.
type orphan struct {
	h     *hold
	grace time.Duration
}

// partLocked takes a session that has ended out of a hold, and reports whether it was the last.
func (e *Engine) partLocked(h *hold, c *client) (o orphan, last bool) {
	i := slices.IndexFunc(h.holders, func(o holder) bool { return o.c == c })
	grace := h.holders[i].grace
	h.holders = slices.Delete(h.holders, i, i+1)
	delete(c.holds, h)
	if len(h.holders) > 0 {
		return orphan{}, false
	}
	e.dropLocked(h)
	if grace != 0 {
		e.keepLocked(h)
	}
	return orphan{h, grace}, true
}

// settleOrphan applies GRACE.
func (e *Engine) settleOrphan(o orphan) {
	if o.grace < 0 {
		return
	}
	e.applyGrace(o.h, o.grace)
}

// persist runs a clean-up as jobs until it succeeds, Redis refuses it, or limit has passed: by then the lease it is
// about has run out. Then it calls done, if there is one, without locks.
func (e *Engine) persist(what, key string, limit time.Duration, done func(), task func(context.Context) error) {
	until := time.Now().Add(limit)
	pause := retryFirst
	e.tending.Add(1)
	end := func() {
		if done != nil {
			done()
		}
		e.tending.Add(-1)
	}
	var once func()
	once = func() {
		ctx, cancel := context.WithTimeout(e.life, answerLimit)
		err := task(ctx)
		cancel()
		var refusal redisError
		switch {
		case err == nil:
			end()
		case errors.As(err, &refusal), e.life.Err() != nil, time.Now().After(until):
			end()
			e.log.Warn("clean-up given up", zap.String("task", what), logKey(key), zap.Error(err))
		default:
			e.jobs.after(pause, once)
			pause = min(2*pause, retryLast)
		}
	}
	e.jobs.submit(once)
}

// Pauses between attempts while Redis does not answer.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
)

func logKey(key string) zap.Field { return zap.String("key", key) }
