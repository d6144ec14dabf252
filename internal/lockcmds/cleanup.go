package lockcmds

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/jobs"
)

// orphan is a hold whose last session has ended.
type orphan struct {
	h     *hold
	grace time.Duration
	part  int64 // of that session
}

// partLocked takes a session that has ended out of a hold, and reports whether it was the last. What it has acquired with
// GRACE 0 is given back also while others go on.
func (e *Engine) partLocked(h *hold, c *client) (o orphan, last bool) {
	i := slices.IndexFunc(h.holders, func(o holder) bool { return o.c == c })
	if i < 0 {
		return orphan{}, false // it was lost or let go meanwhile
	}
	o = orphan{h, h.holders[i].grace, h.holders[i].part}
	h.holders = slices.Delete(h.holders, i, i+1)
	if len(h.holders) == 0 {
		e.dropLocked(h)
		return o, true
	}
	if o.grace == 0 && o.part > 0 {
		h.count -= o.part
		e.giveBackLocked(grantOf{h.holdKey, h.fence}, o.part, false, h.ttl)
	}
	return o, false
}

// settleOrphan applies GRACE.
func (e *Engine) settleOrphan(o orphan) {
	if o.grace < 0 {
		return
	}
	e.applyGrace(o.h, o.grace, o.part)
}

// cleanup is something that has to be done in Redis though no client asks for it.
type cleanup struct {
	what, key string
	task      func(context.Context) error
	limit     time.Duration // of trying: by then the lease it is about has run out
	once      bool          // not to be repeated when it may have been done
	done      func(ok bool) // the end; without locks. nil: nobody wants to know
}

// tend runs a task as a job that Close waits for.
func (e *Engine) tend(task func()) {
	e.tending.Add(1)
	e.jobs.Submit(jobs.Attempt, func() {
		defer e.tending.Add(-1)
		task()
	})
}

// persist runs a clean-up as jobs until it succeeds, Redis refuses it, or its limit has passed.
func (e *Engine) persist(c cleanup) {
	until := e.clock.Now().Add(c.limit)
	pause := retryFirst
	e.tending.Add(1)
	end := func(err error) {
		if err != nil {
			e.log.Warn("clean-up failed", zap.String("task", c.what), logKey(c.key), zap.Error(err))
		}
		if c.done != nil {
			c.done(err == nil)
		}
		e.tending.Add(-1)
	}
	var attempt func()
	attempt = func() {
		err := c.task(e.life)
		if err == nil || isFinal(err) || c.once && errors.Is(err, ErrInDoubt) || e.life.Err() != nil || e.clock.Now().After(until) {
			end(err)
			return
		}
		e.jobs.After(pause, jobs.CleanUp, attempt)
		pause = min(2*pause, retryLast)
	}
	e.jobs.Submit(jobs.CleanUp, attempt)
}

// isFinal reports whether Redis refuses something for good, and not because of a state that passes.
func isFinal(err error) bool {
	refusal, refused := asRefusal(err)
	code, _, _ := strings.Cut(string(refusal), " ")
	switch code {
	case "LOADING", "BUSY", "MASTERDOWN", "READONLY", "MISCONF", "NOREPLICAS", "OOM", "CLUSTERDOWN", "TRYAGAIN":
		return false
	}
	return refused
}

// Pauses between attempts while Redis does not answer.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
)

func logKey(key string) zap.Field { return zap.String("key", key) }
