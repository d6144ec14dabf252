package table

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file decides whether the first waiter in the queue of a free lock is stale. It must take the lock, or all
// waiters behind it wait. The reaper of a queue whose waiters are behind it, now or lately, watches that.
//
//	watchHead ──► ListPlaces ─PlacesListed─► the stale time ─lookDueNow─► AskHead wakes the head by name
//	                  ▲                                                    ▲  └──HeadTold──┬─ ours, or none: wake
//	                  └── Redis does not answer: 1 s                       │               ▼
//	                                                                       └─removed── RemoveHead, without a listener
//	                                                                                       │ a subscriber: it has 1 s
//	  the lock is taken: the new lease is waited for ◄── wake ◄────────────────────────────┘ MaxLooks times: removed
//
// Redis counts a connection that was cut off silently as a subscriber until TCP gives it up, hence the second way. A
// waiter that was removed and comes back takes a new place.

const (
	// LookAgain is how long a head that was woken by name has to react before it is woken again.
	LookAgain = time.Second
	// MaxLooks times LookAgain is longer than a live client is paused for, to collect garbage or the like.
	MaxLooks = 3
	// SeenLimit bounds how many places of a foreign queue are looked at in one go.
	SeenLimit = 1000
)

// Trouble says how a question to Redis ended.
type Trouble uint8

// The values of Trouble.
const (
	OK      Trouble = iota // with an answer
	Passing                // Redis did not answer
	Final                  // Redis refused
)

// reaper is what a queue knows of a head that does not take a free lock. The zero value is asleep.
type reaper struct {
	phase   phase
	seen    map[string]bool // the places in the queue in Redis when the watch began
	woken   string          // the head that the latest look has woken, and that has a subscriber
	ignored int             // looks since then without a reaction, though no other waiter was faster
	freed   bool            // another owner has taken and released the lock since the latest look
	// The process of a head that was removed although it had a subscriber: its other waiters are stale too.
	gone string
}

// phase is what the reaper does.
type phase uint8

const (
	asleep  phase = iota // no look follows unless watchHead is called
	listing              // it asks for the places in the queue, or is about to ask again
	idling               // it waits until a look is due
	looking              // it looks at one head after the other
)

// needed reports whether the reaper must go on: a waiter here has a place in Redis, or had one lately.
func (q *Queue) needed() bool { return q.queued() || q.lingers }

// watchHead begins to watch the head, unless the reaper does already: it looks when a live head must have reacted.
func (q *Queue) watchHead() {
	if q.reaper.phase == asleep {
		q.reaper = reaper{phase: listing}
		q.table.emit(Effect{Op: ListPlaces, Queue: q})
	}
}

// PlacesListed is the answer to the effect ListPlaces. Only waiters that are in the queue now will have been there for
// long enough when a look is due. That time counts from here: it does not begin while Redis does not answer.
func (q *Queue) PlacesListed(places []string, f Trouble) {
	if f == OK && q.queued() && len(places) > 0 {
		q.tryHead(places[0])
	}
	r := &q.reaper
	switch {
	case !q.needed() || f == Final:
		r.phase = asleep
		q.forget()
		return
	case f == Passing:
		q.setTimer(lookDue, LookAgain, 0)
		return
	}
	r.seen = make(map[string]bool, len(places))
	for _, place := range places {
		r.seen[place] = true
	}
	r.phase = idling
	q.setTimer(lookDue, q.table.config.StaleHead, 0)
}

// lookDueNow is the end of the timer lookDue.
func (q *Queue) lookDueNow() {
	switch q.reaper.phase {
	case listing:
		q.table.emit(Effect{Op: ListPlaces, Queue: q})
	case idling:
		q.reaper.phase, q.reaper.gone = looking, ""
		q.table.emit(Effect{Op: AskHead, Queue: q, Look: true})
	case asleep, looking:
	}
}

// HeadTold is the answer to the effect AskHead: the first place in the queue in Redis; empty: the queue is empty. look
// is that of the effect.
func (q *Queue) HeadTold(look bool, head string, f Trouble) {
	ours := f == OK && head != "" && q.tryHead(head)
	r := &q.reaper
	switch {
	case !look:
	case f != OK:
		q.looked(f == Passing)
	case head == "" || ours || !r.seen[head]:
		q.looked(false)
	default:
		force := r.countLook(head) >= MaxLooks || r.gone != "" && script.Process(head) == r.gone
		q.table.emit(Effect{Op: RemoveHead, Queue: q, Place: head, Force: force})
	}
}

// HeadRemoved is the answer to the effect RemoveHead: whether the place was removed, and how many listen for it. If it
// was removed, the next one is looked at.
func (q *Queue) HeadRemoved(place string, removed bool, listeners int64, f Trouble) {
	switch {
	case f != OK:
		q.looked(f == Passing)
		return
	case !removed:
		q.looked(listeners > 0)
		return
	case listeners > 0:
		q.reaper.gone = script.Process(place)
	}
	q.table.emit(Effect{Op: AskHead, Queue: q, Look: true})
}

// looked ends a look. again: the head must react now, or Redis did not answer, so the reaper looks again soon. The
// first waiters here ask how things stand; the outcome has the head watched if need be.
func (q *Queue) looked(again bool) {
	q.reaper.phase = asleep
	if q.needed() {
		if again {
			q.reaper.phase = idling
			q.setTimer(lookDue, LookAgain, 0)
		}
		q.wake()
	}
	if q.reaper.phase == asleep {
		q.forget()
	}
}

// countLook returns the number of looks since the head was first woken, at which it had not come. A look does not count
// if the lock was taken and released in between: the head may have come too late.
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

// tryHead lets the head of the queue in Redis ask if it waits here, and reports whether it does. It need not be the
// first one here: in Redis the order is that in which it heard of them, here that in which its answers came.
func (q *Queue) tryHead(head string) bool {
	if head == q.names.Place && q.plain.Len() > 0 {
		q.tryPlain()
		return true
	}
	l := q.places[head]
	if l != nil {
		l.First().first = true
		q.table.try(l.First())
	}
	return l != nil
}
