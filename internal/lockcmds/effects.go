package lockcmds

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
	"lockproxy/internal/resp"
)

// The wait queues are a state machine without I/O: package queue. Here the engine tells it of events, and carries out its effects:
// attempts and questions to Redis as jobs, subscriptions, timers, replies.

// step tells the wait queues of an event. Requires no locks.
func (e *Engine) step(event func(q *queue.Set)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stepLocked(event)
}

// stepLocked is step. Requires e.mu.
func (e *Engine) stepLocked(event func(q *queue.Set)) {
	event(e.queues)
	for {
		effects := e.queues.Effects()
		if len(effects) == 0 {
			break
		}
		for i := range effects {
			e.carryOutLocked(&effects[i])
		}
		e.queues.Done(effects)
	}
	if now := int64(e.queues.Waiters()); now != e.waiting {
		e.opts.Waiting.Add(now - e.waiting)
		e.waiting = now
	}
}

// wakeLocked lets the first waiters of a lock ask. Requires e.mu.
func (e *Engine) wakeLocked(key string) {
	e.stepLocked(func(q *queue.Set) { q.Wake(key) })
}

// carryOutLocked carries out one effect, or has a job do it. Requires e.mu.
func (e *Engine) carryOutLocked(f *queue.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case queue.Attempt:
		w := waiterOf(f.Waiter)
		w.chain = turns.Chain{}
		class := jobs.Attempt
		if f.Urgent {
			class = jobs.HandOver
		}
		e.jobs.Submit(class, func() { e.attempt(w) })
	case queue.Reply:
		e.leftLocked(waiterOf(f.Waiter), *f)
	case queue.Subscribe:
		e.own.Node(channel).Subscribe(channel)
	case queue.Unsubscribe:
		e.own.Node(channel).Unsubscribe(channel)
	case queue.SetTimer:
		e.setTimerLocked(q, f)
	case queue.StopTimers:
		stopTimers(q)
	case queue.Tidy:
		e.clock.AfterFunc(f.Delay, func() { e.step((*queue.Set).TidyDue) })
	case queue.Patience:
		e.clock.AfterFunc(f.Delay, func() { e.step(func(s *queue.Set) { s.PatienceDue(key) }) })
	case queue.RemovePlaces:
		e.removePlaces(key)
	case queue.Refresh:
		places := f.Places
		e.jobs.Submit(jobs.Renewal, func() { e.refresh(q, places) })
	case queue.ListPlaces:
		e.jobs.Submit(jobs.Attempt, func() { e.listPlaces(q) })
	case queue.AskHead:
		class, look := jobs.HandOver, f.Look
		if look {
			class = jobs.Attempt
		}
		e.jobs.Submit(class, func() { e.askHead(q, look) })
	case queue.RemoveHead:
		place, deaf := f.Place, f.Deaf
		e.jobs.Submit(jobs.Attempt, func() { e.removeHead(q, place, deaf) })
	case queue.GoOn: // a class without backlog
		e.jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			e.step((*queue.Set).Continue)
		})
	}
}

// waiterOf is the acquire that waits.
func waiterOf(w *queue.Waiter) *waiter { return w.Tag.(*waiter) }

// timers are those of one wait queue.
type timers [queue.TimersCount]clock.Timer

func (e *Engine) setTimerLocked(q *queue.Queue, f *queue.Effect) {
	all, ok := q.Tag.(*timers)
	if !ok {
		all = &timers{}
		q.Tag = all
	}
	timer, d := f.Timer, f.Delay
	if f.Spread > 0 {
		d += e.clock.Random(f.Spread)
	}
	if t := all[timer]; t != nil {
		t.Stop()
	}
	all[timer] = e.clock.AfterFunc(d, func() { e.step(func(*queue.Set) { q.TimerDue(timer) }) })
}

func stopTimers(q *queue.Queue) {
	if all, ok := q.Tag.(*timers); ok {
		for _, t := range all {
			if t != nil {
				t.Stop()
			}
		}
	}
}

// leftLocked ends an acquire that has left its wait queue. One that was granted the lock goes on: its attempt delivers the grant.
// Requires e.mu.
func (e *Engine) leftLocked(w *waiter, f queue.Effect) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if f.Outcome == queue.Granted {
		return
	}
	if f.Outcome == queue.Gone && f.Doubt {
		e.giveUpLocked(w)
	}
	e.finishLocked(w)
	if f.Outcome != queue.Gone {
		e.jobs.Submit(jobs.Attempt, func() { e.reply(w, e.replyTo(f.Outcome, f.Err, f.Doubt)) })
	}
}

// replyTo is the reply to an acquire that has to go without the lock.
func (e *Engine) replyTo(o queue.Outcome, err error, doubt bool) func(proto int) []byte {
	switch {
	case doubt: // nobody knows whether it has the lock, so that is what it is told
		return failed(ErrInDoubt)
	case errors.Is(err, errDraining):
		e.refusedOne()
		return func(int) []byte { return resp.AppendError(nil, resp.Overloaded, errDraining.Error()) }
	case o == queue.Error:
		return failed(err)
	}
	return null
}

var (
	errDraining  = errors.New("draining")
	errUnblocked = script.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
)

// answerOf is what the outcome of an attempt means to the wait queue.
func answerOf(w *waiter, a script.Acquired, err error) queue.Answer {
	var refusal script.Error
	switch {
	case errors.As(err, &refusal):
		return queue.Answer{Status: queue.Refused, Err: err}
	case errors.Is(err, ErrInDoubt):
		return queue.Answer{Status: queue.InDoubt}
	case err != nil:
		return queue.Answer{Status: queue.Unsent}
	case a.Granted:
		return queue.Answer{Status: queue.Held, TTL: w.lease, Placed: a.Placed, Place: turns.Place(a.Place)}
	}
	return queue.Answer{TTL: a.PTTL, Placed: a.Placed, Place: turns.Place(a.Place)}
}

// failureOf is how a question to Redis about the queue has ended.
func failureOf(err error) queue.Failure {
	switch {
	case err == nil:
		return queue.OK
	case isRefusal(err):
		return queue.Final
	}
	return queue.Passing
}

// removePlaces takes places out of the queue in Redis.
func (e *Engine) removePlaces(key string) {
	e.persist(cleanup{
		what: "leave the fair queue", key: key, limit: e.opts.fairWait,
		task: func(ctx context.Context) error {
			var places []string
			e.step(func(q *queue.Set) { places = q.Departing(key) })
			if len(places) == 0 {
				return nil
			}
			_, err := runFor(ctx, e.own, script.Leave{Key: key, Places: places}.Call(), script.DecodeCount)
			return err
		},
		done: func(bool) { e.step(func(q *queue.Set) { q.Departed(key) }) },
	})
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

// refresh puts off the deadlines of places in Redis.
func (e *Engine) refresh(q *queue.Queue, places []string) {
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		n, err := runFor(
			e.life, e.own, script.Refresh{Key: q.Names().Key, Wait: e.opts.fairWait, Places: batch}.Call(), script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || n < len(batch)
	}
	e.step(func(*queue.Set) { q.Refreshed(lost) })
}

// listPlaces asks Redis who is in the queue of a lock.
func (e *Engine) listPlaces(q *queue.Queue) {
	name := script.QueueOf(q.Names().Key)
	places, err := e.own.Node(name).List(e.life, name, queue.SeenLimit)
	e.step(func(*queue.Set) { q.PlacesListed(places, failureOf(err)) })
}

// askHead asks Redis whose place is the first.
func (e *Engine) askHead(q *queue.Queue, look bool) {
	place, err := runFor(e.life, e.own, script.Head{Key: q.Names().Key}.Call(), script.DecodeHead)
	e.step(func(*queue.Set) { q.HeadTold(look, place, failureOf(err)) })
}

// removeHead removes the first place if its waiter is dead.
func (e *Engine) removeHead(q *queue.Queue, place string, deaf bool) {
	key := q.Names().Key
	a, err := runFor(e.life, e.own, script.DeadHead{Key: key, Place: place, Deaf: deaf}.Call(), script.DecodeDeadHead)
	if a.Removed {
		e.log.Info("stale fair waiter removed", logKey(key))
	}
	e.step(func(*queue.Set) { q.HeadRemoved(place, a.Removed, a.Receivers, failureOf(err)) })
}

// news tells the wait queues of what is published. It implements redislink.Listener.
type news struct{ e *Engine }

func (n news) Confirmed(channel string) { n.e.step(func(q *queue.Set) { q.Subscribed(channel) }) }
func (n news) Published(channel string) { n.e.step(func(q *queue.Set) { q.Published(channel) }) }
func (n news) Refused(channel string, reason redislink.Refusal) {
	n.e.step(func(q *queue.Set) { q.SubscriptionRefused(channel, reason) })
}
