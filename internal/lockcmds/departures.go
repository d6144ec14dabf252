package lockcmds

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/lockcmds/script"
)

// Fair waiters that give up leave the queue in Redis together: one call takes out all waiters of a lock that have gathered while the
// call before was on its way. So the end of n waiters costs n steps here, and one pass over the queue in Redis for each leaveBatch.

const (
	// leaveLimit bounds the delay of the null that ends a wait: until then the answer waits for the place to leave the queue.
	leaveLimit = 50 * time.Millisecond
	// leaveBatch bounds one call, because Redis serves no other client meanwhile.
	leaveBatch = 1000
)

// departures are the waiters of one lock that are to leave its queue. They are guarded by Engine.mu and exist while there are any.
type departures struct {
	key  string
	list []departure
}

type departure struct {
	place string
	done  func() // runs once: when the waiter has left, or has been put off for long enough. nil: nobody waits for that
}

// leave takes a waiter out of the queue in Redis, if it stands there, and then runs done. Without locks, and not from a session if
// done enters one.
func (e *Engine) leave(w *waiter, done func()) {
	e.mu.Lock()
	leaves := e.leavesLocked(w)
	if leaves {
		e.departLocked(w, done)
	}
	e.mu.Unlock()
	if !leaves && done != nil {
		done()
	}
}

// leavesLocked reports whether a waiter has a place in the queue in Redis that nobody else here waits in for the same owner.
func (e *Engine) leavesLocked(w *waiter) bool {
	return w.fair() && w.wait != 0 && !e.queuesLocked(w.key, script.NamesOf(w.key).PlaceOf(w.owner))
}

// queuesLocked reports whether somebody here waits at that place.
func (e *Engine) queuesLocked(key, place string) bool {
	r := e.rooms[key]
	if r != nil && place == r.PlaceOf(e.crowd) {
		return r.crowd.Queued()
	}
	return r != nil && e.fairOfLocked(r, place) != nil
}

// departLocked has a waiter leave the queue in Redis.
func (e *Engine) departLocked(w *waiter, done func()) {
	e.departPlaceLocked(w.key, script.NamesOf(w.key).PlaceOf(w.owner), done)
}

// departPlaceLocked takes a place out of the queue of a lock.
func (e *Engine) departPlaceLocked(key, place string, done func()) {
	if done != nil {
		done = sync.OnceFunc(done)
		patience := e.clock.AfterFunc(leaveLimit, done)
		answer := done
		done = func() {
			patience.Stop()
			answer()
		}
	}
	d := e.leaving[key]
	first := d == nil
	if first {
		d = &departures{key: key}
		e.leaving[key] = d
	}
	d.list = append(d.list, departure{place, done})
	if first {
		e.departNow(d)
	}
}

// departNow has the departures leave, batch after batch, until there are none.
func (e *Engine) departNow(d *departures) {
	var batch []departure
	e.persist(cleanup{
		what: "leave the fair queue", key: d.key, limit: e.opts.fairWait,
		task: func(ctx context.Context) error {
			if batch == nil { // what has gathered when it is this job's turn
				batch = e.takeDepartures(d)
			}
			return e.depart(ctx, d, batch)
		},
		done: func(bool) {
			for _, gone := range batch {
				if gone.done != nil {
					gone.done()
				}
			}
			e.mu.Lock()
			more := len(d.list) > 0
			if !more {
				delete(e.leaving, d.key)
			}
			e.mu.Unlock()
			if more {
				e.departNow(d)
			}
		},
	})
}

func (e *Engine) takeDepartures(d *departures) []departure {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(d.list), leaveBatch)
	batch := d.list[:n:n]
	d.list = d.list[n:]
	return batch
}

// depart takes a batch out of the queue, but for owners that have come back: their places are not for us to take.
func (e *Engine) depart(ctx context.Context, d *departures, batch []departure) error {
	places := make([]string, 0, len(batch))
	e.mu.Lock()
	for _, gone := range batch {
		if !e.queuesLocked(d.key, gone.place) {
			places = append(places, gone.place)
		}
	}
	e.mu.Unlock()
	if len(places) == 0 {
		return nil
	}
	_, err := runFor(ctx, e.own, script.Leave{Key: d.key, Places: places}.Call(), script.DecodeCount)
	return err
}
