package lockcmds

import (
	"slices"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
)

// plainCall is the script call of a plain acquire.
func (w *waiter) plainCall() script.Acquire {
	return script.Acquire{Key: w.key, Owner: w.owner, Lease: w.lease, Shared: w.explicit}
}

// fairCall is the script call of a fair waiter: it takes or keeps its place in the queue, unless it does not wait.
func (e *Engine) fairCall(w *waiter) script.Fair {
	return script.Fair{Acquire: w.plainCall(), Wait: e.opts.fairWait, Enqueue: w.wait != 0}
}

// enterFairLocked takes the waiter into the queue here.
func (e *Engine) enterFairLocked(r *room, w *waiter) {
	r.fair.push(w)
	if r.refresh == nil {
		e.refreshInLocked(r)
	}
}

// fairOfLocked returns the fair waiter here that stands in the queue by that name; nil: there is none.
func (e *Engine) fairOfLocked(r *room, place string) *waiter {
	if t := e.hub.find(r.Channel + ":" + place); t != nil {
		for w := range t.waiters {
			if w.room == r && w.fair() {
				return w
			}
		}
	}
	return nil
}

// queuedLocked reports whether somebody here has a place in the queue.
func (r *room) queuedLocked() bool { return r.fair.first != nil || r.crowd.Queued() }

// stillFairLocked is the outcome "not your turn". The first one here watches for the rest: the end of the holder's
// lease, and a free lock that its head does not take.
func (e *Engine) stillFairLocked(r *room, w *waiter, a script.Acquired) {
	if w != r.fair.first {
		return
	}
	// Also for a free lock: whoever is first there may let its lease run out, and nothing would announce that.
	e.armLocked(r, a.PTTL)
	if a.PTTL != script.Kept {
		return
	}
	e.watchHeadLocked(r)
	if r.fair.len > 1 {
		e.jobs.Submit(jobs.HandOver, func() { e.tryOwnHead(r) })
	}
}

// tryOwnHead finds out who the head is, and lets it try if it is one of ours.
func (e *Engine) tryOwnHead(r *room) {
	head, err := e.headOf(r)
	if err != nil {
		return // the watch over the head goes on
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.rooms[r.Lock] == r && head != "" {
		e.tryOwnHeadLocked(r, head)
	}
}

// refreshInLocked keeps the deadlines of our fair waiters ahead of the clock, three times per wait.
func (e *Engine) refreshInLocked(r *room) {
	r.refresh = e.jobs.After(e.opts.fairWait/3, jobs.Renewal, func() { e.refreshNow(r) })
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

func (e *Engine) refreshNow(r *room) {
	e.mu.Lock()
	here := e.rooms[r.Lock] == r && r.queuedLocked()
	var places []string
	if here {
		e.refreshInLocked(r)
		if r.crowd.Queued() {
			places = append(places, r.PlaceOf(e.crowd))
		}
		for w := r.fair.first; w != nil; w = w.next {
			places = append(places, r.PlaceOf(w.owner))
		}
	} else {
		r.refresh = nil
	}
	e.mu.Unlock()
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		kept, err := runFor(e.life, e.own, script.Refresh{Key: r.Lock, Wait: e.opts.fairWait, Places: batch}.Call(), script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || kept < len(batch)
	}
	if !lost {
		return
	}
	// Somebody was dropped all the same, by a client of Redisson: the next attempt takes a new place.
	e.mu.Lock()
	defer e.mu.Unlock()
	r.woken = true
	e.tryPlainLocked(r)
	for w := r.fair.first; w != nil; w = w.next {
		e.tryLocked(w)
	}
}
