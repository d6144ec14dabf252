package table

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Answer is what came of an attempt, or of a hand-over.
type Answer struct {
	Status Status
	Err    error // of Refused
	// If Held: how long the lock is not free for the next waiter. If Busy: the rest of the holder's lease, NoTTL, Kept or
	// NotFirst.
	TTL    time.Duration
	More   bool        // if Held: the next waiter may have the lock, too
	Form   script.Form // if Busy: where a release may be told
	Placed bool        // if Busy: Place is known
	Place  Place       // where the crowd's place is now, if the attempt was made there
	Again  bool        // if Busy: the answer says nothing of now; ask again at once
}

// TTLs that stand for something else than a length of time.
const (
	NoTTL    = script.NoTTL
	Kept     = script.Kept
	NotFirst = script.NotFirst
)

// inTurn reports whether the waiter could have the lock if it were its turn.
func (a Answer) inTurn() bool { return a.TTL == Kept || a.TTL == NotFirst }

// Wake lets the first waiters of a lock ask: it may be free.
func (t *waits) Wake(key string) {
	if q := t.locks[key].queue; q != nil {
		q.wake()
	}
}

func (q *Queue) wake() {
	q.tryPlain()
	if w := q.fair.First(); w != nil {
		q.table.try(w)
	}
}

func (q *Queue) tryPlain() {
	if w := q.plain.First(); w != nil {
		q.table.try(w)
	}
}

// try has one waiter ask, or notes that it must ask again after the attempt on its way. Before its subscriptions are
// confirmed it does not ask: the confirmation lets it.
func (t *waits) try(w *Waiter) {
	q := w.queue
	switch {
	case w.state == asking:
		w.woken = true
		return
	case w.state != waiting || !q.base.ready || w.sub != nil && !w.sub.ready:
		return
	}
	q.begin(w)
	t.emit(Effect{Op: Attempt, Waiter: w, Queue: q})
}

// AskAgain has a waiter ask, unless it has left.
func (t *waits) AskAgain(w *Waiter) {
	if w.queue != nil {
		t.try(w)
	}
}

// begin notes that an attempt of the waiter, or a hand-over to it, is on its way.
func (q *Queue) begin(w *Waiter) {
	w.state, w.woken, w.turn, w.streak = asking, false, turn{}, Streak{}
	if q.plain.First() == w {
		w.turn = turn{first: true, stays: q.place.Stays(q.plain.Len()), enqueue: q.woken}
		q.woken = false
	}
}

// Offer takes the waiters of which one gets the lock by a hand-over, if Redis finds that it is its turn. from is the
// holder that hands it over, and last the streak of its own grant. The outcome of each is told by Answered.
func (t *waits) Offer(from Key, last Streak, now time.Time) (plain, fair *Waiter) {
	q := t.locks[from.Lock].queue
	if q == nil {
		return nil, nil
	}
	streak, ok := last.Next(now)
	if !ok {
		return nil, nil // the message of the release gives all waiters the same chance
	}
	take := func(l *line[*Waiter], others bool) *Waiter {
		for w := range l.Values() {
			switch {
			case w.state == asking && others: // several holders hand the lock over at the same time
				continue
			case w.state != waiting || w.Owner == from.Owner || w.doubt || !from.Kind.HandsOver(w.Kind):
				return nil
			}
			q.begin(w)
			w.streak = streak
			w.turn.first = !w.Fair // also of one behind others: the script may take the crowd's place for it
			return w
		}
		return nil
	}
	several := !from.Kind.Reenters()
	return take(&q.plain, several && !q.place.Queued()), take(&q.fair, several)
}

// Answered is the outcome of an attempt, or of a hand-over. w is in a queue until then.
func (t *waits) Answered(w *Waiter, a Answer) {
	q := w.queue
	w.state = waiting
	first := q.plain.First() == w && !w.turn.first // it has become the first meanwhile
	q.placed(w, a)
	q.hear(a)
	w.failed = a.Status >= Refused
	w.doubt = w.failed && (w.doubt || a.Status == InDoubt)
	if !w.failed && q.pause > 0 {
		q.pause = 0
		t.recover(q)
	}
	switch {
	case a.Status == Held:
		q.expect(a.TTL)
		woken, sub := w.woken, w.sub
		t.remove(w, Granted, nil)
		if w.OfNamed() { // others of the owner only deepen the hold, and need not wait to be told
			t.each(sub.waiters.All(), t.try)
		}
		if woken { // the message may have been about the end of this very grant
			t.Wake(q.names.Key)
		} else if a.More || w.Kind.Shares() || q.roomier(w) {
			t.Wake(q.names.Key) // the next one shares the lock, or takes a place so that no others get in before it
		}
	case a.Status == Refused && w.pending <= Null:
		t.remove(w, Error, a.Err)
		t.Wake(q.names.Key)
	case w.pending != NoOutcome:
		t.remove(w, w.pending, w.err)
		t.Wake(q.names.Key)
	case w.failed:
		q.pause = min(max(2*q.pause, retryFirst), retryLast)
		q.failed = true
		q.setTimer(expiry, q.pause/2, q.pause/2)
	case w.woken || a.Again || first && a.inTurn(): // perhaps for the crowd's place
		t.try(w)
	case w.Fair:
		q.notYet(w, a)
	default:
		q.expect(a.TTL)
		if a.inTurn() {
			q.watchHead()
		}
	}
}

// roomier reports whether the next waiter would have the lock beside more holders than one that has got it.
func (q *Queue) roomier(than *Waiter) bool {
	for _, next := range []*Waiter{q.plain.First(), q.fair.First()} {
		if than.Limit > 0 && next != nil && next.Limit > than.Limit {
			return true
		}
	}
	return false
}

// recover has the waiters ask again whose attempts have failed, now that Redis answers. Each may have no place in
// Redis, by which it would be woken.
func (t *waits) recover(q *Queue) {
	t.each(q.fair.All(), func(w *Waiter) {
		if w.failed {
			t.try(w)
		}
	})
}

// Pauses between attempts while Redis does not answer.
const (
	retryFirst = 20 * time.Millisecond
	retryLast  = time.Second
)

// placed notes what became of the crowd's place by an attempt of its first waiter.
func (q *Queue) placed(w *Waiter, a Answer) {
	first := w.turn.first
	w.turn = turn{}
	switch {
	case w.Fair:
		w.first = w.first || a.Status == Busy && a.Place == Head
		return
	case !first:
		return
	case a.Status == InDoubt:
		q.place.Doubt()
	case a.Status == Held:
		q.place.Granted(q.plain.Len(), a.Place)
	case a.Placed:
		q.place.Refused(a.Place)
	}
	if q.place.Queued() && q.byName == nil {
		// Redisson's clients wake the first by name alone, and a place without a subscriber is removed.
		q.byName = q.table.listen(q.names.Wake)
		q.byName.byName.Push(&q.inByName, q)
		q.refresh()
	}
}

// notYet is the outcome "not your turn". The first one here watches for the rest: the end of the holder's lease, and a
// free lock that its head does not take.
func (q *Queue) notYet(w *Waiter, a Answer) {
	if q.fair.First() != w {
		return
	}
	// Also if the lock is free: the first in Redis's queue may let its lease run out, and nothing announces that.
	q.expect(a.TTL)
	if !a.inTurn() {
		return
	}
	q.watchHead()
	if q.fair.Len() > 1 {
		q.table.emit(Effect{Op: AskHead, Queue: q})
	}
}

// expect has the first waiters ask again when the holder's lease is over: nothing announces that. Nor that a key was
// deleted by hand, or a lease shortened by a re-entry: so the lock is looked at once per lease of ours in any case. An
// attempt that has failed is repeated first. The answer to another attempt does not stand for it: a message may have
// come after that answer.
func (q *Queue) expect(ttl time.Duration) {
	switch {
	case q.failed:
	case q.timed && ttl == NotFirst: // the lease that ends first may be one of which another waiter has heard
	case ttl == Kept:
		q.setTimer(expiry, TurnLimit, TurnLimit/8)
	case ttl < 0:
		q.setTimer(expiry, q.table.config.Lease, 0)
	default:
		// Redis still has the key in its last millisecond, and waiters elsewhere have been told the same instant.
		q.setTimer(expiry, min(q.table.config.Lease, ttl+time.Millisecond), 3*time.Millisecond)
	}
}

// TurnLimit is for how long a free lock is kept for the first in Redis's queue: keep_for_first in script/lib/queue.lua.
const TurnLimit = 250 * time.Millisecond
