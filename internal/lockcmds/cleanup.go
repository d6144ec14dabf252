package lockcmds

import (
	"context"
	"runtime"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
)

// partLocked takes a session that has ended out of a hold. What it returns is to be rolled back: with GRACE the session's part, and of a
// named owner whose other sessions go on, also the field of a session that has no holds. nil: nothing is.
func (e *Engine) partLocked(h *hold, c *client) *rollback {
	i := slices.IndexFunc(h.holders, func(o holder) bool { return o.c == c })
	if i < 0 {
		return nil // it was lost or let go meanwhile
	}
	o := h.holders[i]
	h.holders = slices.Delete(h.holders, i, i+1)
	last := len(h.holders) == 0
	if last {
		e.dropLocked(h)
	}
	private, grace := h.owner == c.owner, o.grace
	switch {
	case !private && o.holds == 0:
		grace = 0
	case grace < 0, !last && grace > 0:
		return nil
	case !last:
		h.count -= o.holds
	}
	r := &rollback{
		Drop: script.Drop{Key: h.key, Part: e.partOf(c, h.owner), Grace: grace}, by: h.by.Node(h.key), after: h.lease, limit: h.ttl,
	}
	r.Fence = h.fence
	return r
}

// cleanup is something that has to be done in Redis though no client asks for it.
type cleanup struct {
	what, key string
	task      func(context.Context) error
	limit     time.Duration // of trying: by then the lease it is about has run out
	done      func(ok bool) // the end; requires no locks. nil: no caller waits for it
}

// background runs a task as a job that Close waits for.
func (e *Engine) background(task func()) {
	e.tending.Add(1)
	e.jobs.Submit(jobs.Attempt, func() {
		defer e.tending.Add(-1)
		task()
	})
}

// retry runs a clean-up as jobs until it succeeds, Redis refuses it, or its limit has passed.
func (e *Engine) retry(c cleanup) {
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
		if err == nil || isFinal(err) || e.life.Err() != nil || e.clock.Now().After(until) {
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

// Work on thousands of waiters or holds at once, as at the end of a session with very many locks, is done in slices. Between two slices
// other goroutines get Engine.mu and the processor.

// sliceSize is how many waiters or holds are dealt with while Engine.mu is held once: about a tenth of a millisecond.
const sliceSize = 128

// endHolds takes an ended session out of its holds, to which no one else has a reference any more. The first slice is done at once. The
// rest is left to a job of a class without backlog, because the leases are renewed until then. Requires the session lock.
func (e *Engine) endHolds(c *client, holds map[*hold]struct{}) {
	e.endSlice(c, holds)
	if len(holds) == 0 {
		return
	}
	e.tending.Add(1)
	e.jobs.Submit(jobs.Renewal, func() {
		defer e.tending.Add(-1)
		for len(holds) > 0 {
			e.endSlice(c, holds)
			runtime.Gosched()
		}
	})
}

// endSlice removes some of the holds from the map, and ends those that no other session has.
func (e *Engine) endSlice(c *client, holds map[*hold]struct{}) {
	some := make([]*hold, 0, min(len(holds), sliceSize))
	for h := range holds {
		if len(some) == cap(some) {
			break
		}
		some = append(some, h)
		delete(holds, h)
	}
	rollbacks := make([]rollback, 0, len(some))
	e.mu.Lock()
	for _, h := range some {
		if r := e.partLocked(h, c); r != nil {
			rollbacks = append(rollbacks, *r)
		}
	}
	e.mu.Unlock()
	for _, r := range rollbacks {
		e.rollBack(r)
	}
}
