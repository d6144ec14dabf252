package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/owners"
	"lockproxy/internal/lockcmds/script"
)

// Whoever is first in the queue of a free lock must take it, or all behind it wait. One of those behind looks after it:
//
//	free, and not ours ──DeadHead──► look: wake the head by name
//	                                   │ nobody listens: dead, removed; the next one is looked at
//	                                   │ somebody listens ──1 s──► look again ──► … deafLooks without a reaction: removed
//	                                   ▼
//	                                 taken: the lease of whoever took it is waited for
//
// Redis counts a connection that was cut off silently as a listener until TCP gives it up, hence the second way. Who was
// removed and comes back takes a new place.
const (
	// lookAgain is how long a head that was woken by name has to react before it is woken again.
	lookAgain = time.Second
	// deafLooks times lookAgain is longer than a live client is paused for, to collect garbage or the like.
	deafLooks = 3
	// seenLimit bounds how many places of a foreign queue are looked at in one go.
	seenLimit = 1000
)

// headWatch is what a room knows of a head that does not take a free lock.
type headWatch struct {
	look  clock.Timer     // a look is due, or under way
	seen  map[string]bool // who was in the queue when the watch began
	woken string          // the head that the latest look has woken though somebody listens
	deaf  int             // looks since then at which it had not come, though nobody was faster
	freed bool            // the lock was taken and released by somebody else since the latest look
}

// releasedLocked is a message on the base channel. The fair head is woken by name; if it is not ours and does not
// react, nobody would tell us.
func (e *Engine) releasedLocked(r *room) {
	r.head.freed = true
	if r.queuedLocked() {
		e.watchHeadLocked(r)
	}
}

// watchHeadLocked looks at the queue now and again when a live head must have reacted.
func (e *Engine) watchHeadLocked(r *room) {
	if r.head.look != nil {
		return
	}
	r.head = headWatch{look: e.jobs.After(0, jobs.Attempt, func() { e.noteQueue(r) })}
}

// noteQueue remembers who is in the queue now: only they will have been there for long enough when a look is due. The time
// counts from here; while Redis does not answer it does not begin.
func (e *Engine) noteQueue(r *room) {
	places, err := e.own.Node(r.Queue).List(e.life, r.Queue, seenLimit)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case e.rooms[r.Lock] != r || !r.queuedLocked():
		r.head.look = nil
	case err != nil && !passing(err):
		r.head.look = nil
	case err != nil:
		r.head.look = e.jobs.After(lookAgain, jobs.Attempt, func() { e.noteQueue(r) })
	default:
		if len(places) > 0 {
			e.tryOwnHeadLocked(r, places[0])
		}
		r.head.seen = make(map[string]bool, len(places))
		for _, place := range places {
			r.head.seen[place] = true
		}
		r.head.look = e.jobs.After(e.opts.deadHead, jobs.Attempt, func() { e.lookAtHead(r) })
	}
}

// headOf asks Redis whose place is the first in the queue; empty: nobody waits there.
func (e *Engine) headOf(r *room) (string, error) {
	return runFor(e.life, e.own, script.Head{Key: r.Lock}.Call(), script.DecodeHead)
}

// lookAtHead removes dead heads and lets our first waiter ask how things stand; its outcome watches on if need be.
func (e *Engine) lookAtHead(r *room) {
	again := e.removeDeadHeads(r)
	e.mu.Lock()
	defer e.mu.Unlock()
	r.head.look = nil
	if e.rooms[r.Lock] != r || !r.queuedLocked() {
		return
	}
	if again {
		r.head.look = e.jobs.After(lookAgain, jobs.Attempt, func() { e.lookAtHead(r) })
	}
	e.kickLocked(r.Lock)
}

// removeDeadHeads goes on as long as the head is dead and has been seen for long enough. It reports whether to look again
// soon: it has woken one that must react now, or Redis did not answer.
func (e *Engine) removeDeadHeads(r *room) (again bool) {
	gone := "" // the process of a head that was removed though somebody listened for it: its other waiters are deaf too
	for {
		head, err := e.headOf(r)
		if err != nil {
			return passing(err)
		}
		if head == "" || !e.maySuspect(r, head) {
			return false
		}
		deaf := e.countDeaf(r, head) >= deafLooks || gone != "" && owners.Process(head) == gone
		a, err := runFor(e.life, e.own, script.DeadHead{Key: r.Lock, Place: head, Deaf: deaf}.Call(), script.DecodeDeadHead)
		if err != nil || !a.Removed {
			return err == nil && a.Receivers > 0 || err != nil && passing(err)
		}
		if a.Receivers > 0 {
			gone = owners.Process(head)
		}
		e.log.Info("dead fair waiter removed", logKey(r.Lock))
	}
}

// passing reports whether an error means that Redis did not answer, and not that it refused.
func passing(err error) bool {
	_, refused := asRefusal(err)
	return !refused
}

// maySuspect reports whether the head has been there for long enough, and waits elsewhere.
func (e *Engine) maySuspect(r *room, head string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.rooms[r.Lock] == r && !e.tryOwnHeadLocked(r, head) && r.head.seen[head]
}

// tryOwnHeadLocked lets the head of the queue try if it waits here, and reports whether it does. It need not be the first one
// here: in Redis the order is that in which it heard of them, here that in which its answers came.
func (e *Engine) tryOwnHeadLocked(r *room, head string) bool {
	if head == r.PlaceOf(e.crowd) && r.plain.first != nil {
		e.tryPlainLocked(r)
		return true
	}
	w := e.fairOfLocked(r, head)
	if w != nil {
		e.tryLocked(w)
	}
	return w != nil
}

// countDeaf returns at how many looks the head has not come since it was first woken. If the lock was taken and released
// in between, it may have come and have been too late: that look does not count.
func (e *Engine) countDeaf(r *room, head string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	switch w := &r.head; {
	case w.woken != head:
		w.woken, w.deaf = head, 0
	case !w.freed:
		w.deaf++
	}
	r.head.freed = false
	return r.head.deaf
}
