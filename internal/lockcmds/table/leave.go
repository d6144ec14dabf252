package table

import "time"

// This file has places of waiters leave the queues of locks in Redis together: one call takes out all places of a lock
// that have gathered while the call before was on its way. So the end of n waiters costs n steps here, and one pass
// over the queue in Redis for each batch. It is a state machine: events come in as calls, and departureHooks are
// its questions to the caller.
//
//	Depart ──► gathered ──hooks.Remove──► Batch ──► the caller asks Redis ──► Done ──► hooks.Send: the replies that waited
//	   └─ with a reply: hooks.Wait ──► Due ──► hooks.Send: a reply is put off for replyDelay at most

const (
	// replyDelay bounds the delay of a reply that waits for a place to leave the queue: it is between half of it and
	// all of it.
	replyDelay = 50 * time.Millisecond
	// batchLimit bounds one call, because Redis serves no other client meanwhile.
	batchLimit = 1000
)

// departureHooks are what departures ask of their caller. They must not call departures.
type departureHooks[R any] struct {
	Remove   func(key string)                  // begin a call that takes places out: Batch, then Done
	Wait     func(key string, d time.Duration) // start a timer: Due
	Send     func(reply R)                     // called once for each reply
	Occupied func(key, place string) bool      // whether a waiter has the place by now: then it stays
}

// departures is the places that are to leave, of all locks. R is a reply that waits until the place has left.
type departures[R any] struct {
	hooks departureHooks[R]
	locks map[string]*lockDepartures[R]
}

// newDepartures returns an empty set.
func newDepartures[R any](h departureHooks[R]) *departures[R] {
	return &departures[R]{hooks: h, locks: make(map[string]*lockDepartures[R])}
}

// lockDepartures is the places of one lock that are to leave its queue. It exists while there are any.
type lockDepartures[R any] struct {
	list, batch []departure[R]       // batch is those of the call on its way
	replies     []*lateDepartures[R] // those of an earlier round first
	round       int
	timed       bool // Due follows
}

type departure[R any] struct {
	place string
	reply *lateDepartures[R] // nil: no reply waits until the place is left
}

// lateDepartures is a reply that is given when the place has left, or when the waiter has been put off for long enough.
type lateDepartures[R any] struct {
	reply R
	round int
	sent  bool
}

// Depart has a place leave the queue of a lock.
func (s *departures[R]) Depart(key, place string) { s.depart(key, departure[R]{place: place}) }

// DepartBefore has a place leave the queue of a lock before the reply is sent, or replyDelay passes.
func (s *departures[R]) DepartBefore(key, place string, reply R) {
	l := &lateDepartures[R]{reply: reply}
	d := s.depart(key, departure[R]{place, l})
	l.round = d.round
	d.replies = append(d.replies, l)
	if !d.timed {
		d.timed = true
		s.hooks.Wait(key, replyDelay/2)
	}
}

func (s *departures[R]) depart(key string, one departure[R]) *lockDepartures[R] {
	d := s.locks[key]
	if d == nil {
		d = &lockDepartures[R]{}
		s.locks[key] = d
		s.hooks.Remove(key)
	}
	d.list = append(d.list, one)
	return d
}

// Due is the end of the timer of hooks.Wait. A reply that has waited for a whole round is sent.
func (s *departures[R]) Due(key string) {
	d := s.locks[key]
	if d == nil {
		return
	}
	n := 0
	for n < len(d.replies) && d.replies[n].round < d.round {
		n++
	}
	for _, l := range d.replies[:n] {
		s.send(l)
	}
	d.replies = d.replies[n:]
	d.round++
	if d.timed = len(d.replies) > 0; d.timed {
		s.hooks.Wait(key, replyDelay/2)
	}
}

func (s *departures[R]) send(l *lateDepartures[R]) {
	if l != nil && !l.sent {
		l.sent = true
		s.hooks.Send(l.reply)
	}
}

// Batch returns the places that the call is to take out: those that have gathered when it begins, without those that
// are occupied again. A call that is repeated asks again.
func (s *departures[R]) Batch(key string) []string {
	d := s.locks[key]
	if d == nil {
		return nil
	}
	if d.batch == nil {
		n := min(len(d.list), batchLimit)
		d.batch, d.list = d.list[:n:n], d.list[n:]
	}
	places := make([]string, 0, len(d.batch))
	for _, one := range d.batch {
		if !s.hooks.Occupied(key, one.place) {
			places = append(places, one.place)
		}
	}
	return places
}

// Done says that the call has ended.
func (s *departures[R]) Done(key string) {
	d := s.locks[key]
	if d == nil {
		return
	}
	for _, one := range d.batch {
		s.send(one.reply)
	}
	if d.batch = nil; len(d.list) == 0 {
		delete(s.locks, key)
		return
	}
	s.hooks.Remove(key)
}

// Len is how many locks have places that are to leave.
func (s *departures[R]) Len() int { return len(s.locks) }
