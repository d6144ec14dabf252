package waiters

import (
	"context"
	"runtime"
	"slices"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/clock"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/names"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/reaper"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// carryOutLocked carries out one effect, or has a job do it. Requires Waiters.mu.
func (x *Waiters) carryOutLocked(f *queue.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case queue.Attempt:
		w := waiterOf(f.Waiter)
		w.chain = turns.Chain{}
		class := jobs.Attempt
		if f.Urgent {
			class = jobs.HandOver
		}
		x.Calls.Jobs.Submit(class, w.attempt)
	case queue.Reply:
		waiterOf(f.Waiter).leftLocked(*f)
	case queue.Subscribe:
		x.Calls.Own.Node(channel).Subscribe(channel)
	case queue.Unsubscribe:
		x.Calls.Own.Node(channel).Unsubscribe(channel)
	case queue.SetTimer:
		x.setTimerLocked(q, f)
	case queue.StopTimers:
		stopTimers(q)
	case queue.Tidy:
		x.Calls.Clock.AfterFunc(f.Delay, func() { x.Step((*queue.Set).TidyDue) })
	case queue.Patience:
		x.Calls.Clock.AfterFunc(f.Delay, func() { x.Step(func(s *queue.Set) { s.PatienceDue(key) }) })
	case queue.RemovePlaces:
		x.removePlaces(key)
	case queue.Refresh:
		places := f.Places
		x.Calls.Jobs.Submit(jobs.Renewal, func() { x.refresh(q, places) })
	case queue.ListPlaces:
		x.Calls.Jobs.Submit(jobs.Attempt, func() { x.listPlaces(q) })
	case queue.AskHead:
		class, look := jobs.HandOver, f.Look
		if look {
			class = jobs.Attempt
		}
		x.Calls.Jobs.Submit(class, func() { x.askHead(q, look) })
	case queue.RemoveHead:
		place, force := f.Place, f.Force
		x.Calls.Jobs.Submit(jobs.Attempt, func() { x.removeHead(q, place, force) })
	case queue.GoOn: // a class without backlog
		x.Calls.Jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			x.Step((*queue.Set).Continue)
		})
	}
}

// waiterOf is the acquire that waits.
func waiterOf(w *queue.Waiter) *waiter { return w.Tag.(*waiter) }

// timers are those of one wait queue.
type timers [queue.TimersCount]clock.Timer

func (x *Waiters) setTimerLocked(q *queue.Queue, f *queue.Effect) {
	all, ok := q.Tag.(*timers)
	if !ok {
		all = &timers{}
		q.Tag = all
	}
	timer, d := f.Timer, f.Delay
	if f.Spread > 0 {
		d += x.Calls.Clock.Random(f.Spread)
	}
	if t := all[timer]; t != nil {
		t.Stop()
	}
	all[timer] = x.Calls.Clock.AfterFunc(d, func() { x.Step(func(*queue.Set) { q.TimerDue(timer) }) })
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

// failureOf is how a question to Redis about the queue has ended.
func failureOf(err error) reaper.Failure {
	if err == nil {
		return reaper.OK
	}
	if _, refused := calls.AsRefusal(err); refused && !calls.IsPostponed(err) {
		return reaper.Final
	}
	return reaper.Passing
}

// removePlaces takes places out of the queue in Redis.
func (x *Waiters) removePlaces(key string) {
	x.Calls.Retry(calls.Cleanup{
		What: "leave the fair queue", Key: key, Limit: x.FairWait,
		Task: func(ctx context.Context) error {
			var places []string
			x.Step(func(q *queue.Set) { places = q.Departing(key) })
			if len(places) == 0 {
				return nil
			}
			_, err := calls.RunFor(ctx, x.Calls.Own, script.Leave{Key: key, Places: places}.Call(), script.DecodeCount)
			return err
		},
		Done: func(bool) { x.Step(func(q *queue.Set) { q.Departed(key) }) },
	})
}

// refreshBatch bounds how long Redis is busy with one script.
const refreshBatch = 1000

// refresh puts off the deadlines of places in Redis.
func (x *Waiters) refresh(q *queue.Queue, places []string) {
	lost := false
	for batch := range slices.Chunk(places, refreshBatch) {
		n, err := calls.RunFor(
			x.Calls.Life, x.Calls.Own, script.Refresh{Key: q.Names().Key, Wait: x.FairWait, Places: batch}.Call(), script.DecodeCount)
		if err != nil {
			break
		}
		lost = lost || n < len(batch)
	}
	x.Step(func(*queue.Set) { q.Refreshed(lost) })
}

// listPlaces asks Redis who is in the queue of a lock.
func (x *Waiters) listPlaces(q *queue.Queue) {
	name := names.Queue(q.Names().Key)
	places, err := x.Calls.Own.Node(name).List(x.Calls.Life, name, reaper.SeenLimit)
	x.Step(func(*queue.Set) { q.PlacesListed(places, failureOf(err)) })
}

// askHead asks Redis whose place is the first.
func (x *Waiters) askHead(q *queue.Queue, look bool) {
	place, err := calls.RunFor(x.Calls.Life, x.Calls.Own, script.Head{Key: q.Names().Key}.Call(), script.DecodeHead)
	x.Step(func(*queue.Set) { q.HeadTold(look, place, failureOf(err)) })
}

// removeHead removes the first place if its waiter is dead.
func (x *Waiters) removeHead(q *queue.Queue, place string, force bool) {
	key := q.Names().Key
	a, err := calls.RunFor(x.Calls.Life, x.Calls.Own, script.RemoveHead{Key: key, Place: place, Force: force}.Call(), script.DecodeHeadRemoved)
	if a.Removed {
		x.Calls.Log.Info("stale fair waiter removed", zap.String("key", key))
	}
	x.Step(func(*queue.Set) { q.HeadRemoved(place, a.Removed, a.Receivers, failureOf(err)) })
}

// Confirmed implements redislink.Listener.
func (x *Waiters) Confirmed(channel string) {
	x.Step(func(q *queue.Set) { q.Subscribed(channel) })
}

// Published implements redislink.Listener.
func (x *Waiters) Published(channel string) {
	x.Step(func(q *queue.Set) { q.Published(channel) })
}

// Refused implements redislink.Listener.
func (x *Waiters) Refused(channel string, reason redislink.Refusal) {
	x.Step(func(q *queue.Set) { q.SubscriptionRefused(channel, reason) })
}
