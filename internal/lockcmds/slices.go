package lockcmds

import (
	"runtime"

	"lockproxy/internal/lockcmds/jobs"
)

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
