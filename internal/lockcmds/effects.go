package lockcmds

import (
	"runtime"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// This file is the shell of the table: it tells the table of events, and carries out the effects.
//
//	event ──► step ──► the table ──► effects ──┬─► leases, subscriptions and losses, at once
//	            ▲                              ├─► a timer ──────────────────────────────┐
//	            │                              └─► a job, one round trip to Redis each ──┤
//	            └──────────────────────────── the event that follows ────────────────────┘

// step tells the table of an event, and carries out the effects. Requires no locks.
func (e *keeper) step(event func(t *table.Table)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.stepLocked(event)
}

// stepLocked is step. Requires keeper.mu.
func (e *keeper) stepLocked(event func(t *table.Table)) {
	event(e.table)
	e.settleLocked()
}

// settleLocked carries out the effects of the table, and those that follow from them. Requires keeper.mu.
func (e *keeper) settleLocked() {
	for all := e.table.Effects(); len(all) > 0; all = e.table.Effects() {
		for i := range all {
			if f := &all[i]; f.Op <= table.Tell {
				e.carryOutHold(f)
			} else {
				e.carryOutWait(f)
			}
		}
		e.table.Done(all)
	}
	e.held.Store(int64(len(e.table.Holds())))
	if now := int64(e.table.Waiters()); now != e.waiting {
		e.opts.Waiting.Add(now - e.waiting)
		e.waiting = now
	}
}

// carryOutHold carries out one effect about a lease or a hold. Requires keeper.mu.
func (e *keeper) carryOutHold(f *table.Effect) {
	h := f.Hold
	switch f.Op {
	case table.Track:
		e.watchdog.Track(&h.Lease, e.entry(h), f.SentAt)
	case table.Pause:
		h.Lease.Pause(nil)
	case table.Resume:
		if !h.Lease.Resume(f.SentAt, e.entry(h)) {
			e.watchdog.Track(&h.Lease, e.entry(h), f.SentAt)
		}
	case table.Continue:
		h.Lease.Continue()
	case table.Shorten:
		h.Lease.Shorten(f.SentAt, h.TTL)
	case table.Forget:
		h.Lease.Forget()
		e.endedLocked(h, f.End)
	case table.Suspect:
		due := e.hear
		if f.Delay == 0 { // the messages are in
			due = func() { e.step((*table.Table).SuspectsDue) }
		}
		e.opts.Clock.AfterFunc(f.Delay, due)
	case table.Tell:
		if e.opts.Events.Lost != nil {
			e.opts.Events.Lost(f.Loss.Reason)
		}
		e.losses.Tell(lossReport{f.Loss, e.opts.Clock.Now().Sub(f.Loss.Since)})
	default:
		panic("BUG: an effect about no hold")
	}
}

// carryOutWait carries out one effect about waiters, or has a job do it. Requires keeper.mu.
func (e *keeper) carryOutWait(f *table.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case table.Attempt:
		e.jobs.Submit(jobs.Urgent, acquireOf(f.Waiter).attempt)
	case table.Finish:
		acquireOf(f.Waiter).leftLocked(f)
	case table.Subscribe:
		e.client.Node(channel).Subscribe(channel)
	case table.Unsubscribe:
		e.client.Node(channel).Unsubscribe(channel)
	case table.SetTimer:
		e.setTimer(q, f)
	case table.StopTimers:
		stopTimers(q)
	case table.Tidy:
		e.opts.Clock.AfterFunc(f.Delay, func() { e.step((*table.Table).TidyDue) })
	case table.Patience:
		e.opts.Clock.AfterFunc(f.Delay, func() { e.step(func(t *table.Table) { t.PatienceDue(key) }) })
	case table.RemovePlaces:
		e.removePlaces(key)
	case table.Refresh:
		places := f.Places
		e.jobs.Submit(jobs.Renewal, func() { e.refresh(q, places) })
	case table.ListPlaces:
		e.jobs.Submit(jobs.Urgent, func() { e.listPlaces(q) })
	case table.AskHead:
		look := f.Look
		e.jobs.Submit(jobs.Urgent, func() { e.askHead(q, look) })
	case table.RemoveHead:
		place, force := f.Place, f.Force
		e.jobs.Submit(jobs.Urgent, func() { e.removeHead(q, place, force) })
	case table.GoOn: // a class without backlog
		e.jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			e.step((*table.Table).GoOn)
		})
	default:
		panic("BUG: an effect about no waiter")
	}
}

// timers are those of one wait queue.
type timers [table.TimersCount]jobs.Timer

func (e *keeper) setTimer(q *table.Queue, f *table.Effect) {
	all, ok := q.Tag.(*timers)
	if !ok {
		all = &timers{}
		q.Tag = all
	}
	timer, d := f.Timer, f.Delay
	if f.Spread > 0 {
		d += e.opts.Clock.Random(f.Spread)
	}
	if t := all[timer]; t != nil {
		t.Reset(d)
		return
	}
	all[timer] = e.opts.Clock.AfterFunc(d, func() { e.step(func(*table.Table) { q.TimerDue(timer) }) })
}

func stopTimers(q *table.Queue) {
	if all, ok := q.Tag.(*timers); ok {
		for _, t := range all {
			if t != nil {
				t.Stop()
			}
		}
	}
}

// listener is the receiver of messages: those of locks are for waiters, and those of grants that were ended by force,
// through any proxy, for holders.
//
// A message is only a reason to look, because every client with the right may publish.
type listener struct {
	e *keeper
}

// Confirmed implements redislink.Listener.
func (l listener) Confirmed(channel string) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) { t.Subscribed(channel) })
		return
	}
	l.e.heard()
}

// Published implements redislink.Listener.
func (l listener) Published(channel, text string) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) {
			if lease, ok := script.ReadFirst(text); ok {
				t.First(channel, lease)
			} else {
				t.Published(channel)
			}
		})
		return
	}
	if m, ok := script.ReadForced(text); ok {
		l.e.look(m)
	}
}

// Refused implements redislink.Listener.
func (l listener) Refused(channel string, reason redislink.Refusal) {
	if channel != script.ForcedChannel {
		l.e.step(func(t *table.Table) { t.SubscriptionRefused(channel, reason) })
		return
	}
	l.e.opts.Logger.Debug("the end of locks by force is not heard of", zap.Error(reason))
	l.e.heard()
}
