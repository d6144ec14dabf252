package lockcmds

import (
	"context"
	"errors"
	"runtime"
	"slices"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
)

// The wait queues are a state machine without I/O: package queue. Here the engine tells it of events, and carries out its effects:
// attempts and questions to Redis as jobs, subscriptions, timers, replies.

// waitQueues is the wait queues of one engine, with what carries out their effects. Its fields are guarded by Engine.mu.
type waitQueues struct {
	e        *Engine // immutable
	place    string  // immutable; the name of the place that plain waiters share in a queue in Redis
	set      *queue.Set
	draining bool  // no client may begin to wait
	waiting  int64 // set.Waiters(), as Options.Waiting counts it
}

// step tells the wait queues of an event. Requires no locks.
func (x *waitQueues) step(event func(q *queue.Set)) {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	x.stepLocked(event)
}

// stepLocked is step. Requires e.mu.
func (x *waitQueues) stepLocked(event func(q *queue.Set)) {
	event(x.set)
	for {
		effects := x.set.Effects()
		if len(effects) == 0 {
			break
		}
		for i := range effects {
			x.carryOutLocked(&effects[i])
		}
		x.set.Done(effects)
	}
	if now := int64(x.set.Waiters()); now != x.waiting {
		x.e.opts.Waiting.Add(now - x.waiting)
		x.waiting = now
	}
}

// wakeLocked lets the first waiters of a lock ask. Requires e.mu.
func (x *waitQueues) wakeLocked(key string) {
	x.stepLocked(func(q *queue.Set) { q.Wake(key) })
}

// carryOutLocked carries out one effect, or has a job do it. Requires e.mu.
func (x *waitQueues) carryOutLocked(f *queue.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case queue.Attempt:
		w := waiterOf(f.Waiter)
		w.chain = turns.Chain{}
		class := jobs.Attempt
		if f.Urgent {
			class = jobs.HandOver
		}
		x.e.jobs.Submit(class, w.attempt)
	case queue.Reply:
		waiterOf(f.Waiter).leftLocked(*f)
	case queue.Subscribe:
		x.e.own.Node(channel).Subscribe(channel)
	case queue.Unsubscribe:
		x.e.own.Node(channel).Unsubscribe(channel)
	case queue.SetTimer:
		x.setTimerLocked(q, f)
	case queue.StopTimers:
		stopTimers(q)
	case queue.Tidy:
		x.e.clock.AfterFunc(f.Delay, func() { x.step((*queue.Set).TidyDue) })
	case queue.Patience:
		x.e.clock.AfterFunc(f.Delay, func() { x.step(func(s *queue.Set) { s.PatienceDue(key) }) })
	case queue.RemovePlaces:
		x.removePlaces(key)
	case queue.Refresh:
		places := f.Places
		x.e.jobs.Submit(jobs.Renewal, func() { x.refresh(q, places) })
	case queue.ListPlaces:
		x.e.jobs.Submit(jobs.Attempt, func() { x.listPlaces(q) })
	case queue.AskHead:
		class, look := jobs.HandOver, f.Look
		if look {
			class = jobs.Attempt
		}
		x.e.jobs.Submit(class, func() { x.askHead(q, look) })
	case queue.RemoveHead:
		place, force := f.Place, f.Force
		x.e.jobs.Submit(jobs.Attempt, func() { x.removeHead(q, place, force) })
	case queue.GoOn: // a class without backlog
		x.e.jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			x.step((*queue.Set).Continue)
		})
	}
}

// waiterOf is the acquire that waits.
func waiterOf(w *queue.Waiter) *waiter { return w.Tag.(*waiter) }

// timers are those of one wait queue.
type timers [queue.TimersCount]clock.Timer

func (x *waitQueues) setTimerLocked(q *queue.Queue, f *queue.Effect) {
	all, ok := q.Tag.(*timers)
	if !ok {
		all = &timers{}
		q.Tag = all
	}
	timer, d := f.Timer, f.Delay
	if f.Spread > 0 {
		d += x.e.clock.Random(f.Spread)
	}
	if t := all[timer]; t != nil {
		t.Stop()
	}
	all[timer] = x.e.clock.AfterFunc(d, func() { x.step(func(*queue.Set) { q.TimerDue(timer) }) })
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

// answerOf is what the outcome of an attempt means to the wait queue.
func answerOf(w *waiter, a script.Acquired, err error) queue.Answer {
	switch _, refused := calls.AsRefusal(err); {
	case refused:
		return queue.Answer{Status: queue.Refused, Err: err}
	case errors.Is(err, contract.ErrInDoubt):
		return queue.Answer{Status: queue.InDoubt}
	case err != nil:
		return queue.Answer{Status: queue.Unsent}
	case a.Granted:
		return queue.Answer{Status: queue.Held, TTL: w.lease, Placed: a.Placed, Place: turns.Place(a.Place)}
	}
	return queue.Answer{TTL: a.PTTL, Placed: a.Placed, Place: turns.Place(a.Place)}
}

// full says why no further client may wait for this lock now, and names the setting that is the reason; empty: one may. Requires e.mu.
func (x *waitQueues) full(key string) (why, limit string) {
	limits := x.e.opts.defaults()
	switch {
	case x.draining:
		return "draining", ""
	case limits.MaxWaiters > 0 && x.e.opts.Waiting.Load() >= int64(limits.MaxWaiters):
		return "too many waiters", "max-waiters"
	case limits.MaxWaitersPerLock > 0 && int(x.lenLocked(key)) >= limits.MaxWaitersPerLock:
		return "too many waiters for this lock", "max-waiters-per-lock"
	}
	return "", ""
}

// failureOf is how a question to Redis about the queue has ended.
func failureOf(err error) queue.Failure {
	if err == nil {
		return queue.OK
	}
	if _, refused := calls.AsRefusal(err); refused {
		return queue.Final
	}
	return queue.Passing
}

// removePlaces takes places out of the queue in Redis.
func (x *waitQueues) removePlaces(key string) {
	x.e.calls.Retry(calls.Cleanup{
		What: "leave the fair queue", Key: key, Limit: x.e.opts.fairWait,
		Task: func(ctx context.Context) error {
			var places []string
			x.step(func(q *queue.Set) { places = q.Departing(key) })
			if len(places) == 0 {
				return nil
			}
			_, err := calls.RunFor(ctx, x.e.own, script.Leave{Key: key, Places: places}.Call(), script.DecodeCount)
			return err
		},
		Done: func(bool) { x.step(func(q *queue.Set) { q.Departed(key) }) },
	})
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

// refresh puts off the deadlines of places in Redis.
func (x *waitQueues) refresh(q *queue.Queue, places []string) {
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		n, err := calls.RunFor(
			x.e.life, x.e.own, script.Refresh{Key: q.Names().Key, Wait: x.e.opts.fairWait, Places: batch}.Call(), script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || n < len(batch)
	}
	x.step(func(*queue.Set) { q.Refreshed(lost) })
}

// listPlaces asks Redis who is in the queue of a lock.
func (x *waitQueues) listPlaces(q *queue.Queue) {
	name := script.QueueOf(q.Names().Key)
	places, err := x.e.own.Node(name).List(x.e.life, name, queue.SeenLimit)
	x.step(func(*queue.Set) { q.PlacesListed(places, failureOf(err)) })
}

// askHead asks Redis whose place is the first.
func (x *waitQueues) askHead(q *queue.Queue, look bool) {
	place, err := calls.RunFor(x.e.life, x.e.own, script.Head{Key: q.Names().Key}.Call(), script.DecodeHead)
	x.step(func(*queue.Set) { q.HeadTold(look, place, failureOf(err)) })
}

// removeHead removes the first place if its waiter is dead.
func (x *waitQueues) removeHead(q *queue.Queue, place string, force bool) {
	key := q.Names().Key
	a, err := calls.RunFor(x.e.life, x.e.own, script.RemoveHead{Key: key, Place: place, Force: force}.Call(), script.DecodeHeadRemoved)
	if a.Removed {
		x.e.log.Info("stale fair waiter removed", zap.String("key", key))
	}
	x.step(func(*queue.Set) { q.HeadRemoved(place, a.Removed, a.Receivers, failureOf(err)) })
}

// Confirmed implements redislink.Listener.
func (x *waitQueues) Confirmed(channel string) {
	x.step(func(q *queue.Set) { q.Subscribed(channel) })
}

// Published implements redislink.Listener.
func (x *waitQueues) Published(channel string) {
	x.step(func(q *queue.Set) { q.Published(channel) })
}

// Refused implements redislink.Listener.
func (x *waitQueues) Refused(channel string, reason redislink.Refusal) {
	x.step(func(q *queue.Set) { q.SubscriptionRefused(channel, reason) })
}

// namesOf is what waiting for a lock needs.
func (x *waitQueues) namesOf(key string) queue.Names {
	n := script.NamesOf(key)
	return queue.Names{Key: key, Channel: n.Channel, Place: n.PlaceOf(x.place), Wake: n.NameChannel(x.place)}
}

// lenLocked is how many waiters a lock has here. Requires e.mu.
func (x *waitQueues) lenLocked(key string) int64 {
	if q := x.set.Find(key); q != nil {
		all, _ := q.Len()
		return int64(all)
	}
	return 0
}

// count is lenLocked. Requires no locks.
func (x *waitQueues) count(key string) int64 {
	x.e.mu.Lock()
	defer x.e.mu.Unlock()
	return x.lenLocked(key)
}
