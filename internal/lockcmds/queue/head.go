package queue

import "github.com/lockproxy/lockproxy/internal/lockcmds/reaper"

// The first waiter in the queue of a free lock must take it, or all waiters behind it wait. Package reaper decides what to do about a head
// that does not.

// released is a message on the base channel. The head in Redis is woken by name; if it is not ours and does not react, no message
// would come.
func (q *Queue) released() {
	q.reaper.Released()
	if q.queued() {
		q.watchHead()
	}
}

// watchHead looks at the queue in Redis when a live head must have reacted.
func (q *Queue) watchHead() { q.take(q.reaper.Watch()) }

// take takes a step of the reaper.
func (q *Queue) take(s reaper.Step) {
	if s.Delay > 0 {
		q.setTimer(Look, s.Delay, 0)
	}
	switch s.Op {
	case reaper.List:
		q.set.emit(Effect{Op: ListPlaces, Queue: q})
	case reaper.AskHead:
		q.set.emit(Effect{Op: AskHead, Queue: q, Look: true})
	case reaper.RemoveHead:
		q.set.emit(Effect{Op: RemoveHead, Queue: q, Place: s.Place, Force: s.Force})
	case reaper.Wake:
		q.wake()
	case reaper.Nothing, reaper.Pause:
	}
}

// PlacesListed is the answer to the effect ListPlaces.
func (q *Queue) PlacesListed(places []string, f reaper.Failure) {
	if q.ended {
		return
	}
	if f == reaper.OK && q.queued() && len(places) > 0 {
		q.tryHead(places[0])
	}
	q.take(q.reaper.Listed(places, q.set.config.StaleHead, q.queued(), f))
}

// HeadTold is the answer to the effect AskHead: the first place in the queue in Redis; empty: the queue is empty. look is that of the
// effect.
func (q *Queue) HeadTold(look bool, head string, f reaper.Failure) {
	if q.ended {
		return
	}
	ours := f == reaper.OK && head != "" && q.tryHead(head)
	if look {
		q.take(q.reaper.Told(head, ours, q.queued(), f))
	}
}

// HeadRemoved is the answer to the effect RemoveHead: whether the place was removed, and how many listen for it.
func (q *Queue) HeadRemoved(place string, removed bool, listeners int64, f reaper.Failure) {
	if !q.ended {
		q.take(q.reaper.Removed(place, removed, listeners, q.queued(), f))
	}
}

// tryHead lets the head of the queue in Redis ask if it waits here, and reports whether it does. It need not be the first one here: in
// Redis the order is that in which it heard of them, here that in which its answers came.
func (q *Queue) tryHead(head string) bool {
	if head == q.names.Place && q.shared.Len() > 0 {
		q.tryShared()
		return true
	}
	l := q.places[head]
	if l != nil {
		q.set.try(l.First())
	}
	return l != nil
}
