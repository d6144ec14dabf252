package lockcmds

import (
	"runtime"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// Work on thousands of holds at once, as at the end of a session with very many locks, is done in slices. Between two
// slices other goroutines get keeper.mu and the processor.

// endingSlice is the number of holds that end while keeper.mu is held once: about a tenth of a millisecond.
const endingSlice = 128

// Ended is called once when the client connection has ended: its acquire leaves its wait queue, its leases are no
// longer renewed, and GRACE applies. It does not block. Requires the session lock.
func (e *Engine) Ended(session uint64) { e.ended(session, false) }

// Forsaken is Ended for a client that has not gone: the proxy closes its connection because of Redis. Its locks keep
// the rest of their leases, whatever GRACE says. It returns how many there are.
func (e *Engine) Forsaken(session uint64) (holds int) { return e.ended(session, true) }

// Holding is the number of locks that a session holds here. Requires the session lock.
func (e *Engine) Holding(session uint64) int {
	defer e.failstop.Guard()
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.sessions[session]; c != nil {
		return c.Holding()
	}
	return 0
}

func (e *Engine) ended(session uint64, forsaken bool) (held int) {
	defer e.failstop.Guard()
	e.mu.Lock()
	c := e.sessions[session]
	if c == nil {
		e.mu.Unlock()
		return 0
	}
	delete(e.sessions, session)
	c.ended, c.forsaken = true, forsaken
	held = c.Holding()
	holds, w := c.Leave(), c.asks
	var unconfirmed grant
	if w != nil {
		c.asks, unconfirmed = nil, w.unsynced
		e.stepLocked(func(t *table.Table) { t.Left(&w.Waiter) })
	}
	e.mu.Unlock()
	e.endHolds(c, holds)
	if unconfirmed.fence != 0 { // no wait for replicas that may not come
		w.undo(unconfirmed, nil)
	}
	return held
}

// endHolds takes an ended session out of its holds. The first slice is done at once. A job of a class without backlog
// does the rest, because the leases are renewed until then. Requires the session lock.
func (e *keeper) endHolds(c *clientSession, holds []*table.Hold) {
	holds = e.endSlice(c, holds)
	if len(holds) == 0 {
		return
	}
	e.calls.Background(jobs.Renewal, func() {
		for len(holds) > 0 {
			holds = e.endSlice(c, holds)
			runtime.Gosched()
		}
	})
}

// endSlice takes the session out of the first of the holds, ends each of them that no other session has, and returns
// the others.
func (e *keeper) endSlice(c *clientSession, holds []*table.Hold) (left []*table.Hold) {
	n := min(len(holds), endingSlice)
	some := holds[:n]
	rollbacks := make([]rollback, 0, len(some))
	e.step(func(*table.Table) {
		for _, h := range some {
			if r, ok := e.restLocked(c, h); ok {
				rollbacks = append(rollbacks, r)
			}
		}
	})
	for _, r := range rollbacks {
		e.calls.RollBack(r)
	}
	clear(some) // the memory of a hold that has ended is not kept until the last one has
	return holds[n:]
}

// restLocked takes an ended session out of a hold, and returns the rollback that its GRACE asks for. false: none.
// Requires keeper.mu.
func (e *keeper) restLocked(c *clientSession, h *table.Hold) (r rollback, ok bool) {
	o, ok := e.table.EndPart(h, &c.Session)
	if !ok || c.forsaken {
		return r, false
	}
	r = e.rollback(h, o)
	r.Keep, r.Limit, r.After = o.Grace, max(h.TTL, e.opts.Lease), &h.Lease
	return r, true
}
