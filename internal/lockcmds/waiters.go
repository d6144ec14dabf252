package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
	"lockproxy/internal/resp"
)

// queue is a FIFO of waiters with removal from anywhere.
type queue struct {
	first, last *waiter
	len         int
}

func (q *queue) push(w *waiter) {
	w.prev, w.next = q.last, nil
	if q.last == nil {
		q.first = w
	} else {
		q.last.next = w
	}
	q.last = w
	q.len++
}

func (q *queue) pushFirst(w *waiter) {
	w.prev, w.next = nil, q.first
	if q.first == nil {
		q.last = w
	} else {
		q.first.prev = w
	}
	q.first = w
	q.len++
}

func (q *queue) remove(w *waiter) {
	if w.prev == nil {
		q.first = w.next
	} else {
		w.prev.next = w.next
	}
	if w.next == nil {
		q.last = w.prev
	} else {
		w.next.prev = w.prev
	}
	w.prev, w.next = nil, nil
	q.len--
}

// room is where the waiters of one lock wait; it exists while there are any. All fields are guarded by Engine.mu.
type room struct {
	script.Names
	plain queue // only the first one tries, one attempt at a time
	fair  queue // each has its place in Redis, and is woken by name

	topic  *topic      // the base channel: released
	denied error       // why Redis does not let us listen to it; nil: it does
	trying *waiter     // of plain: with an attempt on its way, or next in a hand-over
	crowd  turns.Crowd // of plain: the place in the queue in Redis
	place  *topic      // of that place; nil: nobody has listened for it yet
	woken  bool        // a message or a timer has come since the latest attempt of plain
	timer  clock.Timer // the end of the holder's lease, or the pause after an error
	pause  time.Duration

	refresh clock.Timer // keeps the deadlines of fair waiters fresh
	head    headWatch
}

// roomLocked returns the room of a lock, made if need be.
func (e *Engine) roomLocked(key string) *room {
	r := e.rooms[key]
	if r == nil {
		r = &room{Names: script.NamesOf(key)}
		r.topic = e.hub.join(r.Channel)
		r.topic.rooms[r] = struct{}{}
		e.rooms[key] = r
	}
	return r
}

// mayQueueLocked reports whether an acquire may join those who wait here for the same lock without asking Redis first: they
// go before it, and what wakes them will wake it when its turn comes. An explicit owner may hold the lock by another session.
func (e *Engine) mayQueueLocked(w *waiter) bool {
	r := e.rooms[w.key]
	return !w.fair() && w.wait != 0 && !w.explicit && r != nil && r.plain.first != nil && r.topic.ready && r.pause == 0
}

// heard is how much a waiter's channels had told when it was noted; the zero value: they were not subscribed.
type heard struct {
	base, own         *topic
	baseNews, ownNews uint64
}

// heardLocked notes what the waiter's channels have told so far.
func (e *Engine) heardLocked(w *waiter) (h heard) {
	r := e.rooms[w.key]
	if r == nil || !r.topic.ready || w.wait == 0 {
		return heard{}
	}
	h = heard{base: r.topic, baseNews: r.topic.news}
	if w.listens() {
		h.own = e.hub.find(r.NameChannel(w.owner))
		if h.own == nil || !h.own.ready {
			return heard{}
		}
		h.ownNews = h.own.news
	}
	return h
}

// newsLocked reports whether an attempt made after the note is not the deciding one: the channels have told something since,
// or were not subscribed all the time.
func (h heard) newsLocked(r *room, own *topic) bool {
	return h.base == nil || h.base != r.topic || h.baseNews != r.topic.news || h.own != own || own != nil && h.ownNews != own.news
}

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if it must not wait, else nil.
// Session locked.
func (e *Engine) await(w *waiter, a script.Acquired) []byte {
	e.mu.Lock()
	if w.c.ended {
		e.finishLocked(w)
		e.mu.Unlock()
		e.leave(w, nil)
		return nil
	}
	full := e.fullLocked(w.key)
	var refusal func(proto int) []byte
	if r := e.rooms[w.key]; r != nil && r.denied != nil {
		refusal, full = failed(r.denied), ""
	} else if full != "" {
		refusal = func(int) []byte { return resp.AppendError(nil, resp.Overloaded, full) }
	}
	if refusal != nil {
		reply := w.inDoubtOr(refusal)
		e.finishLocked(w)
		e.mu.Unlock()
		e.leave(w, nil)
		if full != "" {
			e.refusedOne()
		}
		return reply(w.caller.Proto)
	}
	r := e.roomLocked(w.key)
	w.room, w.state = r, stateWaiting
	e.opts.Waiting.Add(1)
	if w.listens() {
		w.topic = e.hub.join(r.NameChannel(w.owner))
		w.topic.waiters[w] = struct{}{}
	}
	if w.fair() {
		e.enterFairLocked(r, w)
	} else {
		r.plain.push(w)
	}
	switch news := w.heard.newsLocked(r, w.topic); {
	case w.listens() && news:
		e.tryLocked(w)
	case w.fair():
		e.stillFairLocked(r, w, a)
	case r.plain.first == w && (news || a.PTTL == script.Kept): // a free lock is had by who is in the queue
		e.tryPlainLocked(r)
	case r.plain.first == w && r.pause == 0:
		e.armLocked(r, a.PTTL)
	}
	if r.timer == nil {
		e.armLocked(r, a.PTTL)
	}
	if w.wait > 0 {
		w.timer = e.clock.AfterFunc(w.began.Add(w.wait).Sub(e.clock.Now()), func() { e.expire(w) })
	}
	e.mu.Unlock()
	return nil
}

// fullLocked says why nobody may wait for this lock now; empty: one may.
func (e *Engine) fullLocked(key string) string {
	r := e.rooms[key]
	switch {
	case e.draining:
		return "draining"
	case e.opts.MaxWaiters > 0 && e.opts.Waiting.Load() >= int64(e.opts.MaxWaiters):
		return "too many waiters"
	case e.opts.MaxWaitersPerLock > 0 && r != nil && r.plain.len+r.fair.len >= e.opts.MaxWaitersPerLock:
		return "too many waiters for this lock"
	}
	return ""
}

// exitLocked takes a waiter out of its room. Whoever calls it answers the waiter.
func (e *Engine) exitLocked(w *waiter) {
	r := w.room
	if r == nil {
		return
	}
	w.room = nil
	e.opts.Waiting.Add(-1)
	if w.topic != nil {
		delete(w.topic.waiters, w)
		e.hub.leave(w.topic)
	}
	if w.fair() {
		r.fair.remove(w)
	} else {
		r.plain.remove(w)
		if r.trying == w {
			r.trying = nil
		}
		if r.plain.first == nil {
			e.crowdEmptyLocked(r)
		}
	}
	if r.plain.len+r.fair.len > 0 {
		return
	}
	for _, t := range []clock.Timer{r.timer, r.refresh, r.head.look} {
		if t != nil {
			t.Stop()
		}
	}
	delete(r.topic.rooms, r)
	e.hub.leave(r.topic)
	delete(e.rooms, r.Lock)
}

// kickLocked lets the first plain waiter and the first fair one try, if they are here.
func (e *Engine) kickLocked(key string) {
	r := e.rooms[key]
	if r == nil {
		return
	}
	e.tryPlainLocked(r)
	if r.fair.first != nil {
		e.tryLocked(r.fair.first)
	}
}

func (e *Engine) tryPlainLocked(r *room) {
	if r.plain.first == nil {
		return
	}
	if r.trying != nil {
		r.trying.again = true
		return
	}
	e.tryLocked(r.plain.first)
}

// tryLocked starts an attempt of one waiter, or notes that there must be another after the one on its way. Before its
// subscription is confirmed there is none: the confirmation starts it.
func (e *Engine) tryLocked(w *waiter) {
	r := w.room
	ready := r.topic.ready && (w.topic == nil || w.topic.ready)
	switch {
	case w.state == stateTrying:
		w.again = true
		return
	case w.state != stateWaiting || !ready:
		return
	}
	e.beginLocked(r, w)
	class := jobs.Attempt
	if w == r.plain.first || w == r.fair.first {
		class = jobs.HandOver
	}
	e.jobs.Submit(class, func() { e.attempt(w) })
}

// beginLocked notes that an attempt of the waiter, or a hand-over to it, is on its way.
func (e *Engine) beginLocked(r *room, w *waiter) {
	w.state, w.again, w.chain = stateTrying, false, turns.Chain{}
	if !w.fair() && r.trying == nil {
		r.trying = w
	}
	if w.first = w == r.plain.first; w.first {
		w.stays, w.enqueue = r.crowd.Stays(r.plain.len), r.woken
		r.woken = false
	}
}

// onReady and onMessage are the hub's news about one channel.
func (e *Engine) onReady(t *topic) {
	var all []*waiter
	e.mu.Lock()
	missed := t.ready // what was said since the connection was lost
	t.ready = true
	t.news++
	e.wakeNamedLocked(t)
	for r := range t.rooms {
		r.woken = r.woken || missed
		e.tryPlainLocked(r)
		if t == r.topic {
			all = append(all, r.waiters()...)
		}
	}
	e.mu.Unlock()
	// Confirmations come in any order. Who is woken by name and whose own channel was confirmed first has waited for this one.
	e.eachWaiter(all, func(w *waiter) {
		if w.listens() {
			e.tryLocked(w)
		}
	})
}

func (e *Engine) onMessage(t *topic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.news++
	e.wakeLocked(t)
}

// wakeLocked lets all who listen to a channel try.
func (e *Engine) wakeLocked(t *topic) {
	e.wakeNamedLocked(t)
	for r := range t.rooms {
		r.woken = true
		e.tryPlainLocked(r)
		if t == r.topic {
			e.releasedLocked(r)
		}
	}
}

// wakeNamedLocked lets all try who are woken by that name: the first in the queue of a free lock, or whose owner has been granted
// the lock, here or at another proxy.
func (e *Engine) wakeNamedLocked(t *topic) {
	for w := range t.waiters {
		e.tryLocked(w)
	}
}

// onRefused answers those who wait for a channel that Redis does not let us listen to.
func (e *Engine) onRefused(t *topic, refusal script.Error) {
	var refused []*waiter
	e.mu.Lock()
	for r := range t.rooms {
		if t == r.topic { // without word of their place alone, plain waiters still hear of a release
			r.denied = refusal
			refused = append(refused, r.waiters()...)
		}
	}
	for w := range t.waiters {
		refused = append(refused, w)
	}
	e.mu.Unlock()
	e.eachWaiter(refused, func(w *waiter) { e.dismissLocked(w, failed(refusal)) })
}

func (r *room) waiters() []*waiter {
	all := make([]*waiter, 0, r.plain.len+r.fair.len)
	for w := r.plain.first; w != nil; w = w.next {
		all = append(all, w)
	}
	for w := r.fair.first; w != nil; w = w.next {
		all = append(all, w)
	}
	return all
}

// armLocked has the first waiters try again when the holder's lease is over: nothing announces that. Nor that a key was deleted
// by hand, or a lease shortened by a re-entry: so the lock is looked at once per lease of ours in any case.
func (e *Engine) armLocked(r *room, pttl time.Duration) {
	d := e.opts.Lease
	if pttl == script.Kept {
		d = turnLimit + e.clock.Random(turnLimit/8)
	}
	if pttl >= 0 {
		// Redis still has the key in its last millisecond, and waiters elsewhere have been told the same instant.
		d = min(d, pttl+time.Millisecond+e.clock.Random(3*time.Millisecond))
	}
	e.wakeInLocked(r, d)
}

func (e *Engine) wakeInLocked(r *room, d time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	key := r.Lock
	r.timer = e.clock.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.rooms[key] == r {
			r.woken = true
			e.kickLocked(key)
		}
	})
}
