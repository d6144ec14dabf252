package queue

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/owners"
)

// The first waiter in the queue of a free lock must take it, or all waiters behind it wait. The reaper of a proxy with a waiter behind
// it watches that:
//
//	free, and not ours ──StaleHead──► look: wake the head by name
//	                                   │ no subscriber: stale, removed; the next one is looked at
//	                                   │ a subscriber ──1 s──► look again ──► … MaxLooks without a reaction: removed
//	                                   ▼
//	                                 taken: the new lease is waited for
//
// Redis counts a connection that was cut off silently as a subscriber until TCP gives it up, hence the second way. A waiter that was
// removed and comes back takes a new place.
const (
	// LookAgain is how long a head that was woken by name has to react before it is woken again.
	LookAgain = time.Second
	// MaxLooks times LookAgain is longer than a live client is paused for, to collect garbage or the like.
	MaxLooks = 3
)

// SeenLimit bounds how many places of a foreign queue are looked at in one go.
const SeenLimit = 1000

// reaper is what a queue knows of a head that does not take a free lock.
type reaper struct {
	phase   phase
	seen    map[string]bool // the places in the queue in Redis when the watch began
	woken   string          // the head that the latest look has woken, and that has a subscriber
	ignored int             // looks since then without a reaction, though no other waiter was faster
	freed   bool            // another owner has taken and released the lock since the latest look
	gone    string          // the process of a head that was removed although it had a subscriber: its other waiters are stale too
}

// phase is what the reaper does.
type phase uint8

const (
	asleep  phase = iota
	listing       // it asks for the places in the queue, or is about to ask again
	idling        // it waits until a look is due
	looking       // it looks at one head after the other
)

// released is a message on the base channel. The head in Redis is woken by name; if it is not ours and does not react, no message
// would come.
func (q *Queue) released() {
	q.reaper.freed = true
	if q.queued() {
		q.watchHead()
	}
}

// watchHead looks at the queue in Redis when a live head must have reacted.
func (q *Queue) watchHead() {
	if q.reaper.phase == asleep {
		q.reaper = reaper{phase: listing}
		q.set.emit(Effect{Op: ListPlaces, Queue: q})
	}
}

// Failure says how a question of the reaper ended.
type Failure uint8

// The values of Failure.
const (
	OK      Failure = iota // with an answer
	Passing                // Redis did not answer
	Final                  // Redis refused
)

// PlacesListed is the answer to the effect ListPlaces. Only who is in the queue now will have been there for long enough when a look is
// due. The time counts from here; while Redis does not answer it does not begin.
func (q *Queue) PlacesListed(places []string, f Failure) {
	r := &q.reaper
	switch {
	case q.ended:
	case !q.queued() || f == Final:
		r.phase = asleep
	case f == Passing:
		q.setTimer(Look, LookAgain, 0)
	default:
		if len(places) > 0 {
			q.tryHead(places[0])
		}
		r.seen = make(map[string]bool, len(places))
		for _, place := range places {
			r.seen[place] = true
		}
		r.phase = idling
		q.setTimer(Look, q.set.config.StaleHead, 0)
	}
}

func (q *Queue) lookDue() {
	switch r := &q.reaper; r.phase {
	case listing:
		q.set.emit(Effect{Op: ListPlaces, Queue: q})
	case idling:
		r.phase, r.gone = looking, ""
		q.set.emit(Effect{Op: AskHead, Queue: q, Look: true})
	case asleep, looking:
	}
}

// HeadTold is the answer to the effect AskHead: the first place in the queue in Redis; empty: the queue is empty. look is that of the
// effect.
func (q *Queue) HeadTold(look bool, head string, f Failure) {
	r := &q.reaper
	switch {
	case q.ended:
	case !look:
		if f == OK && head != "" {
			q.tryHead(head)
		}
	case f != OK:
		q.looked(f == Passing)
	case head == "" || q.tryHead(head) || !r.seen[head]:
		q.looked(false)
	default:
		process := owners.Process(head)
		ignored := r.countLook(head) >= MaxLooks || r.gone != "" && process == r.gone
		q.set.emit(Effect{Op: RemoveHead, Queue: q, Place: head, Force: ignored})
	}
}

// HeadRemoved is the answer to the effect RemoveHead: whether the place was removed, and how many listen for it. If it was removed, the
// next one is looked at.
func (q *Queue) HeadRemoved(place string, removed bool, listeners int64, f Failure) {
	switch {
	case q.ended:
	case f != OK:
		q.looked(f == Passing)
	case !removed:
		q.looked(listeners > 0)
	default:
		if listeners > 0 {
			q.reaper.gone = owners.Process(place)
		}
		q.set.emit(Effect{Op: AskHead, Queue: q, Look: true})
	}
}

// looked ends a look. again says that the head must react now, or that Redis did not answer: the reaper looks again soon. Our first
// waiters ask how things stand; the outcome has the head watched if need be.
func (q *Queue) looked(again bool) {
	r := &q.reaper
	r.phase = asleep
	if !q.queued() {
		return
	}
	if again {
		r.phase = idling
		q.setTimer(Look, LookAgain, 0)
	}
	q.wake()
}

// tryHead lets the head of the queue in Redis ask if it waits here, and reports whether it does. It need not be the first one here: in
// Redis the order is that in which it heard of them, here that in which its answers came.
func (q *Queue) tryHead(head string) bool {
	if head == q.names.Place && q.shared.len > 0 {
		q.tryShared()
		return true
	}
	l := q.places[head]
	if l != nil {
		q.set.try(l.first())
	}
	return l != nil
}

// countLook returns at how many looks the head has not come since it was first woken. If the lock was taken and released in between, it
// may have come and have been too late: that look does not count.
func (r *reaper) countLook(head string) int {
	switch {
	case r.woken != head:
		r.woken, r.ignored = head, 0
	case !r.freed:
		r.ignored++
	}
	r.freed = false
	return r.ignored
}
