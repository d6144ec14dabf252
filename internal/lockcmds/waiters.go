package lockcmds

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

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
	names
	plain queue // only the first one tries, one attempt at a time
	fair  queue // each has its place in Redis, and is woken by name

	topic  *topic      // the base channel: released
	trying *waiter     // of plain: with an attempt on its way, or next in a hand-over
	timer  *time.Timer // the end of the holder's lease, or the pause after an error
	pause  time.Duration

	handovers   int // since the lock was last free for everybody
	handedSince time.Time

	refresh  *time.Timer // keeps the deadlines of fair waiters fresh
	headLook *time.Timer // a look at a free lock's fair head is due
	seen     map[string]bool
}

// roomLocked returns the room of a lock, made if need be.
func (e *Engine) roomLocked(key string) *room {
	r := e.rooms[key]
	if r == nil {
		r = &room{names: namesOf(key, e.opts.Cluster)}
		r.topic = e.hub.join(r.channel, key, "")
		e.rooms[key] = r
	}
	return r
}

// await makes a busy acquire a waiter. It returns the reply if it must not wait, else nil. Session locked.
func (e *Engine) await(w *waiter, pttl int64) []byte {
	e.mu.Lock()
	if w.c.ended {
		e.finishLocked(w)
		e.mu.Unlock()
		e.leave(w, nil)
		return nil
	}
	if full := e.fullLocked(w.key); full != "" {
		e.finishLocked(w)
		e.mu.Unlock()
		e.leave(w, nil)
		e.refusedOne()
		return resp.AppendError(nil, resp.Overloaded, full)
	}
	r := e.roomLocked(w.key)
	w.room, w.state = r, stateWaiting
	e.opts.Waiting.Add(1)
	if w.fair() {
		e.enterFairLocked(r, w)
	} else {
		r.plain.push(w)
		if r.plain.first == w {
			e.tryPlainLocked(r)
		}
	}
	if r.timer == nil {
		e.armLocked(r, pttl)
	}
	if w.wait > 0 {
		w.timer = time.AfterFunc(time.Until(w.began.Add(w.wait)), func() { e.expire(w) })
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
	if w.fair() {
		r.fair.remove(w)
		e.hub.leave(w.topic)
	} else {
		r.plain.remove(w)
		if r.trying == w {
			r.trying = nil
		}
	}
	if r.plain.len+r.fair.len > 0 {
		return
	}
	for _, t := range []*time.Timer{r.timer, r.refresh, r.headLook} {
		if t != nil {
			t.Stop()
		}
	}
	e.hub.leave(r.topic)
	delete(e.rooms, r.lock)
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
	w.state, w.again = stateTrying, false
	if !w.fair() {
		r.trying = w
	}
	e.jobs.submit(func() { e.attempt(w) })
}

// onReady and onMessage are the hub's news about one channel.
func (e *Engine) onReady(t *topic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	t.ready = true
	e.wakeLocked(t)
}

func (e *Engine) onMessage(t *topic) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.wakeLocked(t)
}

func (e *Engine) wakeLocked(t *topic) {
	r := e.rooms[t.key]
	switch {
	case r == nil:
	case t.owner != "":
		if w := r.fairOf(t.owner); w != nil {
			e.tryLocked(w)
		}
	default:
		e.tryPlainLocked(r)
		e.releasedLocked(r)
	}
}

// onRefused answers those who wait for a channel that Redis does not let us listen to.
func (e *Engine) onRefused(t *topic, refusal redisError) {
	var refused []*waiter
	e.mu.Lock()
	if r := e.rooms[t.key]; r != nil {
		for _, w := range r.waiters() {
			if t == r.topic || t == w.topic {
				e.exitLocked(w)
				e.finishLocked(w)
				refused = append(refused, w)
			}
		}
	}
	e.mu.Unlock()
	for _, w := range refused {
		e.jobs.submit(func() { e.turnAway(w, failed(refusal)) })
	}
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

// armLocked has the first waiters try again when the holder's lease is over: nothing announces that. A lock without a
// TTL is looked at once per lease, because its key can be deleted without a message.
func (e *Engine) armLocked(r *room, pttl int64) {
	d := e.opts.Lease
	if pttl >= 0 {
		// Redis still has the key in its last millisecond, and waiters elsewhere have been told the same instant.
		d = time.Duration(pttl)*time.Millisecond + time.Millisecond + rand.N(3*time.Millisecond)
	}
	e.wakeInLocked(r, d)
}

func (e *Engine) wakeInLocked(r *room, d time.Duration) {
	if r.timer != nil {
		r.timer.Stop()
	}
	key := r.lock
	r.timer = time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if e.rooms[key] == r {
			e.kickLocked(key)
		}
	})
}

// attempt is one script call for a waiter, as a job.
func (e *Engine) attempt(w *waiter) {
	ctx, cancel := context.WithTimeout(e.life, answerLimit)
	defer cancel()
	if f := e.opts.Events.Attempt; f != nil {
		f()
	}
	var a answer
	var err error
	sentAt := time.Now()
	if w.doubt { // written only between attempts
		a, err = e.ask(ctx, w)
	}
	if err == nil && (a == nil || a[0] != 1) {
		sentAt = time.Now()
		a, err = e.call(ctx, w)
	}
	e.mu.Lock()
	w.sentAt = sentAt
	after := e.settleLocked(w, a, err)
	e.mu.Unlock()
	if after != nil {
		after()
	}
}

// call asks for the lock on the engine's own connection.
func (e *Engine) call(ctx context.Context, w *waiter) (answer, error) {
	if w.fair() {
		keys, args := e.fairCall(w)
		return e.own.run(ctx, e.scripts.fair, keys, args)
	}
	return e.own.run(ctx, e.scripts.acquire,
		[]string{w.key, fenceOf(w.key, e.opts.Cluster)}, []string{w.owner, millis(w.lease)})
}

// settleLocked is what the outcome of an attempt, or of a hand-over, means for the waiter. What it returns is to be
// run without locks, and not from a session.
func (e *Engine) settleLocked(w *waiter, a answer, err error) (after func()) {
	r := w.room
	if r == nil { // it was answered while the attempt was on its way
		if err == nil && a[0] == 1 {
			g := grant{fence: a.at(1), count: a.at(2)}
			return func() { e.giveBack(w.key, w.owner, g.fence, 1) }
		}
		return nil
	}
	if r.trying == w {
		r.trying = nil
	}
	w.state = stateWaiting
	var refusal redisError
	switch {
	case err == nil && a[0] == 1:
		g := grant{fence: a.at(1), count: a.at(2), sentAt: w.sentAt}
		after = func() { e.deliver(w, g) }
		e.armLocked(r, w.lease.Milliseconds())
		defer e.kickSameLocked(r, w)
	case w.c.ended:
		after = func() { e.leave(w, nil) }
	case w.refused:
		after = func() {
			e.refusedOne()
			e.turnAway(w, draining())
		}
	case errors.As(err, &refusal):
		after = func() { e.turnAway(w, failed(err)) }
	case w.expired && (errors.Is(err, ErrInDoubt) || w.doubt && err != nil):
		after = func() { e.turnAway(w, failed(ErrInDoubt)) }
	case w.expired:
		after = func() { e.turnAway(w, null) }
	case err != nil:
		w.doubt = w.doubt || errors.Is(err, ErrInDoubt)
		r.pause = min(max(2*r.pause, retryFirst), retryLast)
		e.wakeInLocked(r, r.pause/2+rand.N(r.pause/2))
		return nil
	default:
		w.doubt, r.pause = false, 0
		if w.again {
			e.tryLocked(w)
			return nil
		}
		if w.fair() {
			e.stillFairLocked(r, w, a)
			return nil
		}
		e.armLocked(r, a.at(1))
		return nil
	}
	e.exitLocked(w)
	w.state = stateDone
	if w.timer != nil {
		w.timer.Stop()
	}
	if err != nil || a[0] != 1 {
		e.finishLocked(w)
		e.kickLocked(w.key)
	}
	return after
}

// kickSameLocked lets others of an explicit owner in: they only deepen the hold.
func (e *Engine) kickSameLocked(r *room, granted *waiter) {
	if !granted.explicit {
		return
	}
	for _, w := range r.waiters() {
		switch {
		case w.owner != granted.owner || w == granted:
		case w.fair():
			e.tryLocked(w)
		case r.trying == nil: // one at a time: its grant lets the next one in
			r.plain.remove(w)
			r.plain.pushFirst(w)
			e.tryLocked(w)
		}
	}
}

// deliver tells the client. If it has gone, the lock goes back at once.
func (e *Engine) deliver(w *waiter, g grant) {
	ok := w.c.s.Enter(func() {
		if reply := e.granted(w, g); reply != nil {
			w.c.s.Answer(reply)
		}
	})
	if !ok {
		e.finish(w)
		e.giveBack(w.key, w.owner, g.fence, 1)
	}
}

// tryAgain takes a waiter back whose grant came too late: the lock is released first, if it is still ours.
func (e *Engine) tryAgain(w *waiter, g grant) {
	ctx, cancel := context.WithTimeout(e.life, answerLimit)
	err := e.releaseOnce(ctx, w.key, w.owner, g.fence)
	cancel()
	ok := w.c.s.Enter(func() {
		w.doubt = err != nil
		if reply := e.await(w, 0); reply != nil {
			w.c.s.Answer(reply)
		}
	})
	if !ok {
		e.finish(w)
	}
}

// expire is the end of a waiter's own wait.
func (e *Engine) expire(w *waiter) {
	e.mu.Lock()
	if w.state != stateWaiting {
		w.expired = true
		e.mu.Unlock()
		return
	}
	reply := null
	if w.doubt {
		reply = failed(ErrInDoubt)
	}
	e.exitLocked(w)
	e.finishLocked(w)
	e.mu.Unlock()
	if w.fair() {
		e.jobs.submit(func() { e.turnAway(w, reply) })
		return
	}
	e.reply(w, reply)
}

// abandonLocked takes out a waiter whose client has hung up.
func (e *Engine) abandonLocked(w *waiter) {
	if w.state != stateWaiting {
		return // whoever has its outcome sees that the client has gone
	}
	e.exitLocked(w)
	e.finishLocked(w)
	e.jobs.submit(func() { e.leave(w, nil) })
}

// turnAway answers a waiter that is out of its room, after it has left the fair queue: a client that asks again at
// once must not be taken out by the clean-up of its earlier wait.
func (e *Engine) turnAway(w *waiter, reply func(proto int) []byte) {
	e.leave(w, func() { e.reply(w, reply) })
}

// refusedOne tells metrics.
func (e *Engine) refusedOne() {
	if f := e.opts.Events.Refused; f != nil {
		f()
	}
}

func draining() func(int) []byte {
	return func(int) []byte { return resp.AppendError(nil, resp.Overloaded, "draining") }
}

// refuseLocked takes all waiters out, except those whose attempt is on its way: its outcome decides.
func (e *Engine) refuseLocked(r *room) (refused []*waiter) {
	for _, w := range r.waiters() {
		if w.state == stateTrying {
			w.refused = true
			continue
		}
		e.exitLocked(w)
		e.finishLocked(w)
		refused = append(refused, w)
	}
	return refused
}
