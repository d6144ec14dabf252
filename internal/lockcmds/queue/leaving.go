package queue

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/line"

	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// TimedOut is the end of a waiter's own wait.
func (s *Set) TimedOut(w *Waiter) { s.Remove(w, Null, nil) }

// Left says that the waiter's client has gone.
func (s *Set) Left(w *Waiter) { s.Remove(w, Gone, nil) }

// Remove takes a waiter out with that outcome: Null, Error or Gone. If its attempt is on its way, the outcome is for the case that the
// attempt comes to nothing. It reports whether that has changed how the waiter leaves.
func (s *Set) Remove(w *Waiter, o Outcome, err error) bool {
	switch {
	case w.queue == nil:
		return false
	case w.state == asking:
		before := w.pending
		if o >= before {
			w.pending, w.err = o, err
		}
		return o > before
	}
	s.remove(w, o, err)
	return true
}

// RemoveAll takes out all waiters of all locks: the proxy stops.
func (s *Set) RemoveAll(err error) {
	s.each(s.waiters.All(), func(w *Waiter) { s.Remove(w, Error, err) })
}

func (q *Queue) appendAll(all []*Waiter) []*Waiter { return q.own.AppendTo(q.shared.AppendTo(all)) }

// Withdraw is for a waiter that does not join after all. Its place in Redis, if it has taken one, is given up, and a Reply follows unless
// the outcome is Gone.
func (s *Set) Withdraw(w *Waiter, key string, o Outcome, err error) {
	place := s.abandoned(w, key)
	if o != Gone {
		s.reply(w, key, place, o, err)
	} else if place != "" {
		s.leaving.Depart(key, place)
	}
}

// remove takes a waiter out of its queue.
func (s *Set) remove(w *Waiter, o Outcome, err error) {
	q := w.queue
	s.waiters.Remove(&w.inSet)
	w.queue, w.state = nil, outside
	if w.sub != nil {
		w.sub.waiters.Remove(&w.inSub)
		s.unlisten(w.sub)
		w.sub = nil
	}
	q.line(w.Kind).Remove(&w.inLine)
	place := ""
	if w.Kind.OwnPlace {
		q.givePlace(w)
		if o != Granted {
			place = s.abandoned(w, q.names.Key)
		}
	} else if q.shared.Len() == 0 {
		place = q.abandonPlace()
	}
	if q.shared.Len()+q.own.Len() == 0 {
		q.end()
	}
	s.reply(w, q.names.Key, place, o, err)
}

// abandonPlace gives the shared place up when the last of its waiters has gone. It returns the place if it may be in the queue in Redis.
func (q *Queue) abandonPlace() (place string) {
	if q.byName == nil {
		return ""
	}
	q.byName.byName.Remove(&q.inByName)
	q.set.unlisten(q.byName)
	if q.place.Queued() {
		place = q.names.Place
	}
	q.byName, q.place = nil, turns.Crowd{}
	return place
}

// end ends a queue without waiters.
func (q *Queue) end() {
	q.ended = true
	q.base.queues.Remove(&q.inBase)
	q.set.unlisten(q.base)
	s := q.set
	last := len(s.list) - 1
	s.list[q.index] = s.list[last]
	s.list[q.index].index = q.index
	s.list[last] = nil
	s.list = s.list[:last]
	delete(s.queues, q.names.Key)
	s.emit(Effect{Op: StopTimers, Queue: q})
}

func (q *Queue) takePlace(w *Waiter) {
	l := q.places[w.Place]
	if l == nil {
		l = &line.Line[*Waiter]{}
		q.places[w.Place] = l
	}
	l.Push(&w.inPlace, w)
}

func (q *Queue) givePlace(w *Waiter) {
	l := q.places[w.Place]
	if l.Remove(&w.inPlace); l.Len() == 0 {
		delete(q.places, w.Place)
	}
}

// occupied reports whether a waiter here has that place.
func (s *Set) occupied(key, place string) bool {
	q := s.queues[key]
	return q != nil && (q.places[place] != nil || place == q.names.Place && q.place.Queued())
}

// reply replies to a waiter that is out of its queue, and has the place leave the queue in Redis that it was the last one to need; empty:
// there is none. Without a grant, the reply comes when the place has left: a client that asks again at once must not be taken out by the
// clean-up of its earlier wait, nor find the lock reserved for it.
func (s *Set) reply(w *Waiter, key, place string, o Outcome, err error) {
	e := Effect{Op: Reply, Waiter: w, Outcome: o, Err: err, Doubt: w.doubt}
	if place != "" && (o == Null || o == Error) {
		s.leaving.DepartBefore(key, place, e)
		return
	}
	s.emit(e)
	if place != "" {
		s.leaving.Depart(key, place)
	}
}

// abandoned is the waiter's own place in Redis, if it has one that no other waiter here has for the same owner; else empty.
func (s *Set) abandoned(w *Waiter, key string) string {
	if w.Kind.OwnPlace && w.Placed && !s.occupied(key, w.Place) {
		return w.Place
	}
	return ""
}

// PatienceDue says that the timer of the effect Patience has run out.
func (s *Set) PatienceDue(key string) { s.leaving.Due(key) }

// Departing returns the places that the call for the effect RemovePlaces is to take out. A call that is repeated asks again.
func (s *Set) Departing(key string) []string { return s.leaving.Batch(key) }

// Departed says that the call for the effect RemovePlaces has ended.
func (s *Set) Departed(key string) { s.leaving.Done(key) }

// Leaving is how many locks have places that are to leave the queue in Redis.
func (s *Set) Leaving() int { return s.leaving.Len() }

// refresh keeps the deadlines of our places ahead of Redis's clock, three times per wait.
func (q *Queue) refresh() {
	if !q.refreshing {
		q.refreshing = true
		q.setTimer(Freshen, q.set.config.Wait/3, 0)
	}
}

func (q *Queue) refreshDue() {
	if q.refreshing = q.queued(); !q.refreshing {
		return
	}
	q.setTimer(Freshen, q.set.config.Wait/3, 0)
	places := make([]string, 0, len(q.places)+1)
	if q.place.Queued() {
		places = append(places, q.names.Place)
	}
	for w := range q.own.Values() {
		places = append(places, w.Place)
	}
	q.set.emit(Effect{Op: Refresh, Queue: q, Places: places})
}

// Refreshed is the answer to the effect Refresh. lost says that places were not there any more: a client of Redisson has dropped them.
// The next attempt takes new ones.
func (q *Queue) Refreshed(lost bool) {
	if q.ended || !lost {
		return
	}
	q.woken = true
	q.tryShared()
	q.set.each(q.own.All(), q.set.try)
}
