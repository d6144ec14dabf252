package lockcmds

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// rollback ends a session's part in a grant that no client relies on: the client was not told of it, was told that it
// is lost, or has gone. No command waits for it: a later acquire of the session has another name.
type rollback struct {
	script.Drop
	Kind lockKind // of the lock
	// Its renewal on its way is waited for, because it could make the lease longer again; nil: none.
	After *watchdog.Lease
	// Until is the end of the lease that its client was told; zero: Drop.Keep is the rest of it, from the attempt on.
	Until time.Time
	Limit time.Duration // of trying: by then the lease has run out
	Gone  func()        // the owner does not hold the lock by that grant any more; requires no locks. nil: not of interest
	// Late says that the answer to a call is lost, which is to be undone: it may still lie in a socket. So the rollback is
	// sent once more, lateCopy after its answer.
	Late bool
	// Tried is called behind the first attempt, which has succeeded or not; requires no locks. nil: not of interest.
	Tried func(ok bool)
	Done  func() // is called at the end, each time; requires no locks. nil: not of interest
}

// lateCopy is how much later a rollback is sent once more.
const lateCopy = time.Second

// RollBack sends a rollback until Redis answers. It does not block.
func (c *calls) RollBack(r rollback) {
	if lease := r.After; lease != nil {
		r.After = nil
		if lease.Pause(func() { c.RollBack(r) }) {
			return
		}
	}
	c.Retry(cleanup{
		What: "roll a hold back", Key: r.Key, Limit: r.Limit,
		Task: func(ctx context.Context) error {
			if !r.Until.IsZero() {
				r.Keep = max(time.Millisecond, r.Until.Sub(c.Clock.Now())) // of each attempt: the lease runs meanwhile
			}
			v, err := c.Client.run(ctx, r.Kind.Drop(r.Drop))
			held, err := decoded(v, err, script.DecodeDone)
			if err == nil && !held && r.Gone != nil {
				r.Gone()
			}
			if r.Tried != nil {
				r.Tried(err == nil)
				r.Tried = nil
			}
			return err
		},
		Done: func(bool) {
			if r.Done != nil {
				r.Done()
			}
			if r.Late {
				r.Late = false
				c.After(lateCopy, jobs.CleanUp, func() { c.RollBack(r) })
			}
		},
	})
}

// rollBack undoes what the acquire has done, or may still do. fence is of the grant; 0: the answer to a call is lost. count
// is how many holds the owner had then. The session keeps the holds of which its client was told, and their lease. If
// the session has ended, GRACE applies to them. tried is called behind the first attempt; nil: not of interest. Requires
// no locks.
func (w *acquire) rollBack(fence, count int64, tried func(ok bool)) {
	if w.OfNamed() {
		w.rollBackNamed(fence, count, tried)
		return
	}
	e, part := w.e, w.Part()
	part.Fence = fence
	r := rollback{Kind: kindOf(w.Key), Limit: max(w.Lease, e.opts.Lease), Late: fence == 0, Tried: tried}
	e.mu.Lock()
	h := e.table.Held(&w.Waiter)
	switch {
	case h != nil && fence == 0:
		r.Until, r.Gone = h.Lease.Deadline(), func() { e.gone(h) }
	case h != nil && fence == h.Fence:
		if o := h.PartOf(w.By); o != nil {
			part.Holds = o.Holds
		}
		back := script.Release{Key: w.Lock, Part: part, Lease: e.nextLease(h)}
		e.mu.Unlock()
		e.lower(h, back, r.Limit, tried)
		return
	case h == nil && w.s.ended && w.Before.Holds > 0 && !w.Had.IsLost() && (fence == 0 || fence == w.Had.Fence):
		// The table does not know the part of a session that has ended.
		if w.Before.Grace < 0 || w.s.forsaken {
			r.Until = w.Had.Lease.Deadline()
		} else {
			r.Keep, r.After = w.Before.Grace, &w.Had.Lease
		}
	}
	e.mu.Unlock()
	r.Key, r.Part = w.Lock, part
	e.calls.RollBack(r)
}

// lower has Redis count the holds again that a living session has, and set their lease. Requires no locks.
func (e *keeper) lower(h *table.Hold, back script.Release, limit time.Duration, tried func(ok bool)) {
	e.calls.Retry(cleanup{
		What: "roll a hold back", Key: back.Key, Limit: limit,
		Task: func(ctx context.Context) error {
			a, err := runFor(ctx, e.client, back.Call(), back.Decode)
			if err == nil && a.Status == script.Held { // the acquire may have made the lease longer
				keep := script.Drop{Key: back.Key, Part: back.Part, Keep: back.Lease}
				_, err = runFor(ctx, e.client, keep.Call(), script.DecodeDone)
			} else if err == nil {
				e.gone(h)
			}
			if tried != nil {
				tried(err == nil)
				tried = nil
			}
			return err
		},
	})
}

// rollBackNamed is rollBack for a named owner. A grant in which others take part is known to have one hold too many:
// that is released once, because a copy would release another one. The grant of the acquire itself is ended.
func (w *acquire) rollBackNamed(fence, count int64, tried func(ok bool)) {
	e := w.e
	if tried == nil {
		tried = func(bool) {}
	}
	part := w.By.PartIn(w.Key)
	part.Name, part.Fence = w.Name, fence
	e.mu.Lock()
	least, once := time.Duration(0), fence != 0 && count > 1
	if h := e.table.Held(&w.Waiter); h != nil { // the others keep their lease
		least = max(time.Millisecond, h.Lease.Deadline().Sub(e.opts.Clock.Now()))
	}
	again := once && w.undone // the session has ended, and the answer of the replicas comes behind that
	w.undone = w.undone || once
	e.mu.Unlock()
	switch {
	case again, fence == 0 && w.Before.Acquire != "": // it may have added a hold, which ends with the lease
		tried(true)
	case once:
		r := script.Release{Key: w.Lock, Part: part, Lease: least}
		e.calls.Background(jobs.CleanUp, func() {
			_, err := runFor(e.life, e.client, r.Call(), r.Decode)
			tried(err == nil)
		})
	default:
		e.calls.RollBack(rollback{
			Drop: script.Drop{Key: w.Lock, Part: part}, Kind: kindOf(w.Key),
			Limit: max(w.Lease, e.opts.Lease), Late: fence == 0, Tried: tried,
		})
	}
}

// gone ends a hold that Redis does not have any more. Requires no locks.
func (e *keeper) gone(h *table.Hold) { e.step(func(t *table.Table) { t.Gone(h) }) }
