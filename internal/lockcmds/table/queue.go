package table

import (
	"time"
)

// This file has the wait queue of one lock, and the messages on channels.

// Names are the names of one lock that waiting needs.
type Names struct {
	Key     string
	Channel string // on which a release is announced
	Place   string // the place that the waiters here share in the queue in Redis
	Wake    string // the channel on which the first in Redis's queue is woken, if that is Place
}

// Queue is the waiters of one lock. It exists while there are any, and for a moment longer if it lingers.
type Queue struct {
	table *waits
	names Names
	Tag   any // the caller's own

	plain line[*Waiter] // the plain waiters: only the first asks, one attempt at a time
	fair  line[*Waiter] // those with places of their own

	base   *channel      // of Names.Channel
	denied error         // why Redis does not let us listen to it; nil: it does
	other  *channel      // on which another class of Redisson's tells of a release; nil: it was not needed yet
	place  crowd         // the crowd's place in Redis
	byName *channel      // of Names.Wake; nil: it was not needed yet
	woken  bool          // a message or a timer has come since the latest attempt of plain
	timed  bool          // the timer expiry is set
	failed bool          // it has been set because an attempt has failed, which is repeated then
	pause  time.Duration // after an error; 0: the latest attempt was answered

	places     lines[string, *Waiter] // of fair: the waiters by place
	refreshing bool                   // the timer freshen is set, or its answer is on its way
	reaper     reaper
	lingers    bool // the reaper goes on though the last waiter with a place in Redis has left

	index                                  int // in waits.queues
	inBase, inByName, inOther, inLingering node[*Queue]
}

// Names returns the names of the lock.
func (q *Queue) Names() Names { return q.names }

// Len is how many waiters there are, and how many of them are fair ones.
func (q *Queue) Len() (all, fair int) { return q.plain.Len() + q.fair.Len(), q.fair.Len() }

// First returns the plain waiter and the fair one that have joined the queue first; nil: there is none.
func (q *Queue) First() (plain, fair *Waiter) { return q.plain.First(), q.fair.First() }

// Settled reports whether all subscriptions are confirmed and no waiter asks.
func (q *Queue) Settled() bool {
	for _, w := range q.appendAll(nil) {
		if w.state == asking || w.sub != nil && !w.sub.ready {
			return false
		}
	}
	return q.base.ready && (q.byName == nil || q.byName.ready)
}

func (q *Queue) line(fair bool) *line[*Waiter] {
	if fair {
		return &q.fair
	}
	return &q.plain
}

func (q *Queue) appendAll(all []*Waiter) []*Waiter { return q.fair.AppendTo(q.plain.AppendTo(all)) }

func (q *Queue) setTimer(t Timer, delay, spread time.Duration) {
	if t == expiry {
		q.timed = true
	}
	q.table.emit(Effect{Op: SetTimer, Queue: q, Timer: t, Delay: delay, Spread: spread})
}

// TimerDue says that a timer of a queue has run out.
func (q *Queue) TimerDue(t Timer) {
	switch t {
	case expiry:
		q.woken, q.timed, q.failed = true, false, false
		q.wake()
		if w := q.fair.First(); w != nil && w.state != asking {
			// Its subscriptions are not confirmed, and it may leave before that.
			q.setTimer(expiry, retryLast, 0)
		}
	case freshen:
		q.refreshDue()
	case lookDue:
		q.lookDueNow()
	case lingerOver:
		q.forget()
	}
}

// empty reports whether there are no waiters.
func (q *Queue) empty() bool { return q.plain.Len()+q.fair.Len() == 0 }

// end ends a queue without waiters.
func (q *Queue) end() {
	q.base.queues.Remove(&q.inBase)
	q.table.unlisten(q.base)
	q.hearNoOther()
	t := q.table
	last := len(t.queues) - 1
	t.queues[q.index] = t.queues[last]
	t.queues[q.index].index = q.index
	t.queues[last] = nil
	t.queues = t.queues[:last]
	t.locks.setQueue(q.names.Key, nil)
	t.emit(Effect{Op: StopTimers, Queue: q})
}

// hear has the queue listen to the channel of another class of Redisson's too, if the lock has been seen in that form.
// When the subscription is confirmed the waiters ask again. A user without the right to it asks less often.
func (q *Queue) hear(a Answer) {
	name := a.Form.Channel(q.names.Key)
	if name == "" || q.other != nil && q.other.name == name {
		return
	}
	q.hearNoOther()
	q.other = q.table.listen(name)
	q.other.others.Push(&q.inOther, q)
}

func (q *Queue) hearNoOther() {
	if q.other != nil {
		q.other.others.Remove(&q.inOther)
		q.table.unlisten(q.other)
		q.other = nil
	}
}

// Subscribed is the confirmation of a channel, the first one or one after a new connection.
func (t *waits) Subscribed(channel string) {
	sub, missed := t.channels.confirmed(channel)
	if sub == nil {
		return
	}
	t.each(sub.waiters.All(), t.try)
	sub.eachQueue(func(q *Queue, _ bool) {
		q.woken = q.woken || missed
		q.tryPlain()
	})
	// Confirmations come in any order. A waiter that is woken by name, and whose own channel was confirmed first, has
	// waited for this one.
	for _, of := range []*line[*Queue]{&sub.queues, &sub.others} {
		for q := range of.Values() {
			t.each(q.appendAll(nil), t.tryNamed)
		}
	}
}

func (t *waits) tryNamed(w *Waiter) {
	if w.Named() {
		t.try(w)
	}
}

// Published is a message on a channel. All waiters that listen to it ask, whatever lock they wait for.
func (t *waits) Published(channel string) {
	sub := t.channels.told(channel)
	if sub == nil {
		return
	}
	t.wakeNamed(sub)
	sub.eachQueue(func(q *Queue, released bool) {
		if !released || q.place.Asks() {
			q.woken = true
			q.tryPlain()
		}
		if released {
			q.released()
		}
	})
}

// First is a message by name: the place is the first in the queue in Redis now, and the lock is held for that long.
func (t *waits) First(channel string, lease time.Duration) {
	sub := t.channels.told(channel)
	if sub == nil {
		return
	}
	for q := range sub.byName.Values() {
		q.place.First()
		if w := q.plain.First(); w != nil && w.state == asking {
			w.woken = true // the answer on its way may be older, and say that the place is behind others
		}
		q.expect(lease)
	}
	for w := range sub.waiters.Values() {
		w.first = w.Fair
		w.queue.expect(lease)
	}
}

// wakeNamed has all waiters ask that are woken by that name: the first in the queue of a free lock, or whose owner has
// been granted the lock, here or at another proxy.
func (t *waits) wakeNamed(sub *channel) {
	t.each(sub.waiters.All(), func(w *Waiter) {
		w.first = w.Fair
		t.try(w)
	})
}

// eachQueue calls f for the queues to which it tells of a release, or on which the crowd's place is woken.
func (c *channel) eachQueue(f func(q *Queue, released bool)) {
	for _, of := range []*line[*Queue]{&c.queues, &c.others} {
		for q := range of.Values() {
			f(q, true)
		}
	}
	for q := range c.byName.Values() {
		f(q, false)
	}
}

// SubscriptionRefused says that Redis does not let us listen to a channel. The waiters that need the channel get the
// error.
func (t *waits) SubscriptionRefused(channel string, err error) {
	sub := t.channels.refuse(channel)
	if sub == nil {
		return
	}
	all := sub.waiters.All()
	for _, q := range sub.queues.All() { // without word of their place alone, plain waiters still hear of a release
		q.denied = err
		all = q.appendAll(all)
		q.forget()
	}
	t.each(all, func(w *Waiter) { t.Remove(w, Error, err) })
}

// Mark is how much a waiter's channels had told when it was noted.
type Mark struct{ base, named channelMark }

// Mark notes what the channels of a waiter have told so far. It is called before the attempt that may
// make Join necessary.
func (t *waits) Mark(w *Waiter) (m Mark) {
	if q := t.locks[w.Lock].queue; q != nil {
		m.base = q.base.mark()
		if w.Named() {
			m.named = t.channels.byName[w.Wake].mark()
		}
	}
	return m
}
