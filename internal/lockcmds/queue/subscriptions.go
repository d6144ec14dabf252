package queue

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/line"
)

// linger is the least time for which an unused channel stays subscribed: a contended lock would else subscribe and unsubscribe with
// every hand-over.
const linger = 2 * time.Second

// subscription is one wanted channel. All who listen to it share it, whatever lock they wait for: "a" and "{a}" have one base
// channel, and that of "{a}:j" is the channel of the owner j who waits for "a".
type subscription struct {
	channel string
	refs    int
	ready   bool   // confirmed at least once; every later confirmation is a wake-up, so a gap loses nothing
	seq     uint64 // confirmations and messages so far
	dead    bool   // refused by Redis

	queues  line.Line[*Queue]  // whose base channel it is
	byName  line.Line[*Queue]  // whose shared place is woken on it
	waiters line.Line[*Waiter] // who are woken on it by name

	listed bool // in idleSubscriptions
	since  int  // round of idleSubscriptions in which refs became 0
}

func (s *Set) listen(channel string) *subscription {
	sub := s.subs[channel]
	if sub == nil {
		sub = &subscription{channel: channel}
		s.subs[channel] = sub
		s.emit(Effect{Op: Subscribe, Channel: channel})
	}
	sub.refs++
	return sub
}

func (s *Set) unlisten(sub *subscription) {
	sub.refs--
	if sub.refs > 0 || sub.dead {
		return
	}
	i := &s.idle
	if sub.since = i.round; sub.listed {
		return
	}
	sub.listed = true
	i.list = append(i.list, sub)
	if !i.timed {
		i.timed = true
		s.emit(Effect{Op: Tidy, Delay: linger})
	}
}

// idleSubscriptions are those without references, and some that have been wanted again meanwhile.
type idleSubscriptions struct {
	list  []*subscription
	later []*subscription // those of list that have been looked at in this round and may stay
	round int
	timed bool // TidyDue follows
}

// tidySlice is how many idle subscriptions one event deals with.
const tidySlice = 256

// TidyDue says that the timer of the effect Tidy has run out. Channels that were unused for a whole round are unsubscribed. A round
// lasts for linger.
func (s *Set) TidyDue() {
	i := &s.idle
	n := min(len(i.list), tidySlice)
	slice := i.list[:n:n]
	i.list = i.list[n:]
	for _, sub := range slice {
		switch {
		case sub.refs > 0 || sub.dead:
			sub.listed = false
		case sub.since == i.round:
			i.later = append(i.later, sub)
		default:
			delete(s.subs, sub.channel)
			s.emit(Effect{Op: Unsubscribe, Channel: sub.channel})
		}
	}
	switch {
	case len(i.list) > 0:
		s.emit(Effect{Op: Tidy, Delay: linger / 100})
		return
	case len(i.later) == 0:
		*i = idleSubscriptions{round: i.round + 1}
		return
	}
	i.list, i.later = i.later, nil
	i.round++
	s.emit(Effect{Op: Tidy, Delay: linger})
}

// Subscribed is the confirmation of a channel, the first one or one after a new connection.
func (s *Set) Subscribed(channel string) {
	sub := s.subs[channel]
	if sub == nil {
		return
	}
	missed := sub.ready // what was said since the connection was lost
	sub.ready = true
	sub.seq++
	s.wakeNamed(sub)
	sub.eachQueue(func(q *Queue, _ bool) {
		q.woken = q.woken || missed
		q.tryShared()
	})
	// Confirmations come in any order. A waiter that is woken by name, and whose own channel was confirmed first, has waited for this one.
	for q := range sub.queues.Values() {
		s.each(q.appendAll(nil), s.tryNamed)
	}
}

func (s *Set) tryNamed(w *Waiter) {
	if w.Named() {
		s.try(w)
	}
}

// Published is a message on a channel. All who listen to it ask, whatever lock they wait for.
func (s *Set) Published(channel string) {
	sub := s.subs[channel]
	if sub == nil {
		return
	}
	sub.seq++
	s.wakeNamed(sub)
	sub.eachQueue(func(q *Queue, base bool) {
		q.woken = true
		q.tryShared()
		if base {
			q.released()
		}
	})
}

// wakeNamed lets all ask who are woken by that name: the first in the queue of a free lock, or whose owner has been granted the lock,
// here or at another proxy.
func (s *Set) wakeNamed(sub *subscription) { s.each(sub.waiters.All(), s.try) }

// eachQueue calls f for the queues whose base channel it is, or on which their shared place is woken.
func (sub *subscription) eachQueue(f func(q *Queue, base bool)) {
	for q := range sub.queues.Values() {
		f(q, true)
	}
	for q := range sub.byName.Values() {
		f(q, false)
	}
}

// SubscriptionRefused says that Redis does not let us listen to a channel. Those who wait for it get the error.
func (s *Set) SubscriptionRefused(channel string, err error) {
	sub := s.subs[channel]
	if sub == nil {
		return
	}
	delete(s.subs, channel)
	sub.dead = true
	all := sub.waiters.All()
	for q := range sub.queues.Values() { // without word of their place alone, plain waiters still hear of a release
		q.denied = err
		all = q.appendAll(all)
	}
	s.each(all, func(w *Waiter) { s.Remove(w, Error, err) })
}

// Mark is how much a waiter's channels had told when it was noted; the zero value: they were not subscribed.
type Mark struct {
	base, own       *subscription
	baseSeq, ownSeq uint64
}

// Mark notes what the channels of a waiter for that lock have told so far. It is called before the attempt that may make Join necessary.
func (s *Set) Mark(w *Waiter, key string) (m Mark) {
	q := s.queues[key]
	if q == nil || !q.base.ready {
		return Mark{}
	}
	m = Mark{base: q.base, baseSeq: q.base.seq}
	if w.Named() {
		m.own = s.subs[w.Wake]
		if m.own == nil || !m.own.ready {
			return Mark{}
		}
		m.ownSeq = m.own.seq
	}
	return m
}

// stale reports whether an attempt made after the mark is not the deciding one: the channels have told something since, or were not
// subscribed all the time.
func (m Mark) stale(q *Queue, own *subscription) bool {
	return m.base == nil || m.base != q.base || m.baseSeq != q.base.seq || m.own != own || own != nil && m.ownSeq != own.seq
}
