// Package queue decides which waiter asks for its lock, and when. It is a state machine: events come in as calls of the
// methods of Set, and effects go out through Set.Effects. The package does no I/O, has no mutex and reads no clock.
//
//	Join ──► Queue, one for each lock ──► Attempt ──► the caller asks Redis ──► Answered ──► Reply
//	            ▲ a message, the end of the holder's lease, a release here
//
// Parts of the state have packages of their own, which a Set asks: channels (which ones are subscribed), departures
// (which places leave the queue in Redis together), reaper (whether the head of a free lock's queue is stale) and
// backlog (work for many waiters, in slices).
//
// A kind says how waiters take turns. Waiters of a kind with own places stand in the queue in Redis, each by its own
// name, and are woken by that name. The others share one place there, and only the first of them asks.
//
// The caller serializes all calls. It carries out the effects in their order, and may do so later. An answer for a
// queue that has ended finds no waiter, and ends the work of the reaper.
//
// Invariants:
//   - Each waiter that has joined gets one Reply, and no effect after it.
//   - A waiter has at most one attempt on its way. If it is woken meanwhile, another attempt follows.
//   - No attempt begins before the waiter's subscriptions are confirmed. The confirmation causes one. If the waiter
//     leaves before, the next one asks.
//   - Waiters of one kind ask in the order in which they joined, but for those that are woken by name.
//   - Each event costs O(1), or O(1) for each waiter that it concerns. Work for many waiters is done in slices:
//     Continue.
package queue

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/reaper"
)

// Names are the names of one lock that waiting needs.
type Names struct {
	Key     string
	Channel string // on which a release is announced
	Place   string // the place that the waiters here share in the queue in Redis
	Wake    string // the channel on which the first in Redis's queue is woken, if that is Place
}

// Queue is the waiters of one lock. It exists while there are any, and for a moment longer if it lingers.
type Queue struct {
	set   *Set
	names Names
	Tag   any // the caller's own

	shared Line[*Waiter] // the waiters that share a place: only the first asks, one attempt at a time
	own    Line[*Waiter] // of those with places of their own

	base   *channel      // of Names.Channel
	denied error         // why Redis does not let us listen to it; nil: it does
	place  Crowd         // the shared place in Redis
	byName *channel      // of Names.Wake; nil: it was not needed yet
	woken  bool          // a message or a timer has come since the latest attempt of shared
	timed  bool          // the timer Expiry has been set
	failed bool          // it has been set because an attempt has failed, which is repeated then
	pause  time.Duration // after an error; 0: the latest attempt was answered

	places     map[string]*Line[*Waiter] // of own: the waiters by place
	refreshing bool                      // the timer Refresh is set, or its answer is on its way
	reaper     reaper.Reaper
	lingers    bool // the reaper goes on though the last waiter with a place in Redis has left

	index                         int // in Set.list
	inBase, inByName, inLingering Node[*Queue]
}

// channel is a channel of waiters.
type channel = Channel[listeners]

// listeners are the queues and waiters that a message on a channel concerns.
type listeners struct {
	queues  Line[*Queue]  // whose base channel it is
	byName  Line[*Queue]  // whose shared place is woken on it
	waiters Line[*Waiter] // woken on it by name
}

// Names returns the names of the lock.
func (q *Queue) Names() Names { return q.names }

// Len is how many waiters there are, and how many of them have places of their own.
func (q *Queue) Len() (all, own int) { return q.shared.Len() + q.own.Len(), q.own.Len() }

// First returns the waiters that have joined the queue first: of the waiters that share a place, and of the others.
// nil: there is none.
func (q *Queue) First() (shared, own *Waiter) { return q.shared.First(), q.own.First() }

// Settled reports whether all subscriptions are confirmed and no waiter asks.
func (q *Queue) Settled() bool {
	for _, w := range q.appendAll(nil) {
		if w.state == asking || w.sub != nil && !w.sub.Ready() {
			return false
		}
	}
	return q.base.Ready() && (q.byName == nil || q.byName.Ready())
}

func (q *Queue) line(k *Kind) *Line[*Waiter] {
	if k.OwnPlace {
		return &q.own
	}
	return &q.shared
}

func (q *Queue) appendAll(all []*Waiter) []*Waiter { return q.own.AppendTo(q.shared.AppendTo(all)) }

func (q *Queue) setTimer(t Timer, delay, spread time.Duration) {
	if t == Expiry {
		q.timed = true
	}
	q.set.emit(Effect{Op: SetTimer, Queue: q, Timer: t, Delay: delay, Spread: spread})
}

// TimerDue says that a timer of a queue has run out.
func (q *Queue) TimerDue(t Timer) {
	switch t {
	case Expiry:
		q.woken, q.failed = true, false
		q.wake()
		if w := q.own.First(); w != nil && w.state != asking { // its subscriptions are not confirmed, and it may leave before that
			q.setTimer(Expiry, retryLast, 0)
		}
	case Freshen:
		q.refreshDue()
	case Look:
		q.take(q.reaper.Due())
	case Forget:
		q.forget()
	}
}

// empty reports whether there are no waiters.
func (q *Queue) empty() bool { return q.shared.Len()+q.own.Len() == 0 }

// end ends a queue without waiters.
func (q *Queue) end() {
	q.base.Listeners.queues.Remove(&q.inBase)
	q.set.channels.Leave(q.base)
	s := q.set
	last := len(s.list) - 1
	s.list[q.index] = s.list[last]
	s.list[q.index].index = q.index
	s.list[last] = nil
	s.list = s.list[:last]
	delete(s.queues, q.names.Key)
	s.emit(Effect{Op: StopTimers, Queue: q})
}

// Subscribed is the confirmation of a channel, the first one or one after a new connection.
func (s *Set) Subscribed(channel string) {
	sub, missed := s.channels.Confirmed(channel)
	if sub == nil {
		return
	}
	s.wakeNamed(sub)
	sub.Listeners.eachQueue(func(q *Queue, _ bool) {
		q.woken = q.woken || missed
		q.tryShared()
	})
	// Confirmations come in any order. A waiter that is woken by name, and whose own channel was confirmed first, has
	// waited for this one.
	for q := range sub.Listeners.queues.Values() {
		s.backlog.Each(q.appendAll(nil), s.tryNamed)
	}
}

func (s *Set) tryNamed(w *Waiter) {
	if w.Named() {
		s.try(w)
	}
}

// Published is a message on a channel. All waiters that listen to it ask, whatever lock they wait for.
func (s *Set) Published(channel string) {
	sub := s.channels.Told(channel)
	if sub == nil {
		return
	}
	s.wakeNamed(sub)
	sub.Listeners.eachQueue(func(q *Queue, base bool) {
		q.woken = true
		q.tryShared()
		if base {
			q.released()
		}
	})
}

// wakeNamed has all waiters ask that are woken by that name: the first in the queue of a free lock, or whose owner has
// been granted the lock, here or at another proxy.
func (s *Set) wakeNamed(sub *channel) { s.backlog.Each(sub.Listeners.waiters.All(), s.try) }

// eachQueue calls f for the queues whose base channel it is, or on which their shared place is woken.
func (l *listeners) eachQueue(f func(q *Queue, base bool)) {
	for q := range l.queues.Values() {
		f(q, true)
	}
	for q := range l.byName.Values() {
		f(q, false)
	}
}

// SubscriptionRefused says that Redis does not let us listen to a channel. The waiters that need the channel get the
// error.
func (s *Set) SubscriptionRefused(channel string, err error) {
	sub := s.channels.Refused(channel)
	if sub == nil {
		return
	}
	all := sub.Listeners.waiters.All()
	for _, q := range sub.Listeners.queues.All() { // without word of their place alone, plain waiters still hear of a release
		q.denied = err
		all = q.appendAll(all)
		q.forget()
	}
	s.backlog.Each(all, func(w *Waiter) { s.Remove(w, Error, err) })
}

// Mark is how much a waiter's channels had told when it was noted.
type Mark struct{ base, own SubscriptionMark[listeners] }

// Mark notes what the channels of a waiter for that lock have told so far. It is called before the attempt that may
// make Join necessary.
func (s *Set) Mark(w *Waiter, key string) (m Mark) {
	if q := s.queues[key]; q != nil {
		m.base = q.base.Mark()
		if w.Named() {
			m.own = s.channels.Find(w.Wake).Mark()
		}
	}
	return m
}
