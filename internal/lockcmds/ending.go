package lockcmds

import (
	"runtime"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// Work on thousands of holds at once, as at the end of a session with very many locks, is done in slices. Between two
// slices other goroutines get holds.mu and the processor.

// endingSlice is the number of holds that end while holds.mu is held once: about a tenth of a millisecond.
const endingSlice = 128

// End forgets a session whose client has gone: the leases are no longer renewed, and GRACE applies. It does not block.
// Requires the session lock.
func (x *holds) End(session uint64) {
	x.mu.Lock()
	c := x.sessions[session]
	if c == nil {
		x.mu.Unlock()
		return
	}
	delete(x.sessions, session)
	c.ended = true
	holds := c.Leave()
	x.mu.Unlock()
	x.endHolds(c, holds)
}

// endHolds takes an ended session out of its holds. The first slice is done at once. A job of a class without backlog
// does the rest, because the leases are renewed until then. Requires the session lock.
func (x *holds) endHolds(c *holdSession, holds []*table.Hold) {
	holds = x.endSlice(c, holds)
	if len(holds) == 0 {
		return
	}
	x.Calls.Background(jobs.Renewal, func() {
		for len(holds) > 0 {
			holds = x.endSlice(c, holds)
			runtime.Gosched()
		}
	})
}

// endSlice takes the session out of the first of the holds, ends each of them that no other session has, and returns
// the others.
func (x *holds) endSlice(c *holdSession, holds []*table.Hold) (left []*table.Hold) {
	n := min(len(holds), endingSlice)
	some := holds[:n]
	rollbacks := make([]rollback, 0, len(some))
	x.mu.Lock()
	for _, h := range some {
		if r, ok := x.Rest(c, h); ok {
			rollbacks = append(rollbacks, r)
		}
	}
	x.settleLocked()
	x.mu.Unlock()
	for _, r := range rollbacks {
		x.Calls.RollBack(r)
	}
	clear(some) // the memory of a hold that has ended is not kept until the last one has
	return holds[n:]
}

// Rest takes an ended session out of a hold, and returns the rollback of what it may have left there. false: it has
// left nothing, or a release of a named owner's hold is on its way. Then the answer is followed by another call. It is
// for an event of Step. Requires holds.mu.
func (x *holds) Rest(c *holdSession, entry *table.Hold) (r rollback, ok bool) {
	rest, ok := x.ledger.Part(entry, &c.Session)
	if !ok {
		return r, false
	}
	h := holdOf(entry)
	r = x.rollback(h, &c.Session)
	r.Grace, r.Less, r.Remember, r.Limit = rest.Grace, rest.Less, rest.Remember, h.Most
	if !x.ledger.Knows(entry) { // else the lease goes on for the other sessions, and no Continue would end the pause
		r.After = h.lease
	}
	return r, true
}
