package lockcmds

import (
	"runtime"
	"slices"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
)

// partLocked takes a session that has ended out of a hold. What it returns is to be rolled back: with GRACE the session's part, and of a
// named owner whose other sessions go on, also the field of a session that has no holds. nil: nothing is.
func (e *Engine) partLocked(h *hold, c *client) *calls.Rollback {
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
	r := &calls.Rollback{
		Drop: script.Drop{Key: h.key, Part: e.partOf(c, h.owner), Grace: grace}, By: h.by.Node(h.key), After: h.lease, Limit: h.ttl,
	}
	r.Fence, r.Remember = h.fence, c.releasing > 0
	return r
}

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
	e.calls.Background(jobs.Renewal, func() {
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
	rollbacks := make([]calls.Rollback, 0, len(some))
	e.mu.Lock()
	for _, h := range some {
		if r := e.partLocked(h, c); r != nil {
			rollbacks = append(rollbacks, *r)
		}
	}
	e.mu.Unlock()
	for _, r := range rollbacks {
		e.calls.RollBack(r)
	}
}
