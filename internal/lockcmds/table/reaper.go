package table

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file decides whether the first waiter in the queue of a free lock is stale. It must take the lock, or all
// waiters behind it wait. The reaper of a proxy with a waiter behind it, now or lately, watches that. It is a state
// machine: each event returns the step that the caller takes.
//
//	Watch ──► reapList ──Listed──► reapPause: the stale time ──Due──► reapAskHead wakes the head by name
//	             ▲                                                       ▲        └──Told──┬─ ours, or none: reapWake
//	             └── Redis does not answer: 1 s                          │                 ▼
//	                                                                     └──removed── reapRemoveHead, without a listener
//	                                                                                       │ a subscriber: it has 1 s
//	      the lock is taken: the new lease is waited for ◄── reapWake ◄────────────────────┘ MaxLooks times: removed
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

// reaperOp says what a reaperStep asks for.
type reaperOp uint8

// The steps. In parentheses: the fields that are set, and the event that follows.
const (
	reapNothing    reaperOp = iota
	reapList                // ask Redis for the places in the queue (Listed)
	reapPause               // (Delay; Due)
	reapAskHead             // ask Redis for the first place (Told)
	reapRemoveHead          // remove the first place if the waiter there is stale (Place, Force; Removed)
	reapWake                // let the first waiters here ask how things stand; if Delay is set, also reapPause
)

// reaperStep is what the caller does.
type reaperStep struct {
	Op    reaperOp
	Delay time.Duration
	Place string
	Force bool // the waiter was woken often enough
}

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

// Asleep reports whether no look follows unless Watch is called.
func (r *reaper) Asleep() bool { return r.phase == asleep }

// Released says that the lock was released: another owner may have been faster than the head.
func (r *reaper) Released() { r.freed = true }

// Watch begins to watch the head, unless the reaper does already: it looks when a live head must have reacted.
func (r *reaper) Watch() reaperStep {
	if r.phase != asleep {
		return reaperStep{}
	}
	*r = reaper{phase: listing}
	return reaperStep{Op: reapList}
}

// Listed is the answer to reapList. Only waiters that are in the queue now will have been there for long enough when a
// look is due, after stale. That time counts from here: it does not begin while Redis does not answer. needed: a waiter
// here has a place in the queue, or had one lately.
func (r *reaper) Listed(places []string, stale time.Duration, needed bool, f Trouble) reaperStep {
	switch {
	case !needed || f == Final:
		r.phase = asleep
		return reaperStep{}
	case f == Passing:
		return reaperStep{Op: reapPause, Delay: LookAgain}
	}
	r.seen = make(map[string]bool, len(places))
	for _, place := range places {
		r.seen[place] = true
	}
	r.phase = idling
	return reaperStep{Op: reapPause, Delay: stale}
}

// Due is the end of a reapPause.
func (r *reaper) Due() reaperStep {
	switch r.phase {
	case listing:
		return reaperStep{Op: reapList}
	case idling:
		r.phase, r.gone = looking, ""
		return reaperStep{Op: reapAskHead}
	default:
		return reaperStep{}
	}
}

// Told is the answer to reapAskHead: the first place in the queue; empty: there is none. ours: a waiter here has that
// place, and asks now.
func (r *reaper) Told(head string, ours, needed bool, f Trouble) reaperStep {
	switch {
	case f != OK:
		return r.looked(f == Passing, needed)
	case head == "" || ours || !r.seen[head]:
		return r.looked(false, needed)
	}
	ignored := r.countLook(head) >= MaxLooks || r.gone != "" && script.Process(head) == r.gone
	return reaperStep{Op: reapRemoveHead, Place: head, Force: ignored}
}

// Removed is the answer to reapRemoveHead: whether the place was removed, and how many listen for it. If it was
// removed, the next one is looked at.
func (r *reaper) Removed(place string, removed bool, listeners int64, needed bool, f Trouble) reaperStep {
	switch {
	case f != OK:
		return r.looked(f == Passing, needed)
	case !removed:
		return r.looked(listeners > 0, needed)
	case listeners > 0:
		r.gone = script.Process(place)
	}
	return reaperStep{Op: reapAskHead}
}

// looked ends a look. again: the head must react now, or Redis did not answer, so the reaper looks again soon. The
// first waiters here ask how things stand; the outcome has the head watched if need be.
func (r *reaper) looked(again, needed bool) reaperStep {
	r.phase = asleep
	if !needed {
		return reaperStep{}
	}
	step := reaperStep{Op: reapWake}
	if again {
		r.phase, step.Delay = idling, LookAgain
	}
	return step
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
