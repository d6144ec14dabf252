package lockcmds

import (
	"runtime"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/script"
)

// Work on thousands of waiters or holds at once, as at the end of a session with very many locks, is done in slices. Between two slices
// other goroutines get Engine.mu and the processor.

// sliceSize is how many waiters or holds are dealt with while Engine.mu is held once: about a tenth of a millisecond.
const sliceSize = 128

// endHolds takes an ended session out of its holds, to which no one else has a reference any more. The first slice is done at once. The
// rest is left to a job of a class without backlog, because the leases are renewed until then. Requires the session lock.
func (e *Engine) endHolds(c *client, holds map[*ledger.Hold]struct{}) {
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
func (e *Engine) endSlice(c *client, holds map[*ledger.Hold]struct{}) {
	some := make([]*ledger.Hold, 0, min(len(holds), sliceSize))
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
		// A field that a copy may need stays. If releases are on their way, the last answer removes it: fieldLocked.
		if rest, ok := e.ledger.Part(h, &c.Session); ok && (rest.Grace >= 0 || !rest.Remember) {
			rollbacks = append(rollbacks, e.restLocked(rest, c))
		}
	}
	e.settleLocked()
	e.mu.Unlock()
	for _, r := range rollbacks {
		e.calls.RollBack(r)
	}
}

// restLocked is the rollback of what a session that has ended may have left of a hold.
func (e *Engine) restLocked(rest ledger.Rest, c *client) calls.Rollback {
	h := holdOf(rest.Hold)
	part := e.partOf(&c.Session, h.Owner)
	part.Fence = h.Fence
	r := calls.Rollback{
		Drop: script.Drop{Key: h.Lock, Part: part, Grace: rest.Grace, Remember: rest.Remember}, By: h.by.Node(h.Lock), Limit: h.TTL,
	}
	if rest.Grace >= 0 && !e.ledger.Knows(rest.Hold) { // else the lease goes on for the other sessions, and no Continue would end the pause
		r.After = h.lease
	}
	return r
}
