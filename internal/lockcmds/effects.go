package lockcmds

import (
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
)

// This file carries out the effects of package queue that concern no acquire: subscriptions, timers, and the places
// that waiters have in the queue in Redis. It keeps no state but the timers.
//
//	effect ──CarryOut──┬─► subscriptions, at once
//	                   ├─► a timer ──────────────────────────────┐
//	                   └─► a job, one round trip to Redis each ──┴─► Step: the event that follows

// effectCarrier carries out the effects of one engine's wait queues. All fields are required and immutable.
type effectCarrier struct {
	Calls *calls
	Wait  time.Duration                // the unit of deadlines in the queue in Redis
	Step  func(event func(*queue.Set)) // tells the wait queues of an event; requires no locks
}

// CarryOut carries out one effect, or has a job do it. It is called for one effect at a time, and for none of Attempt
// and Reply.
func (c *effectCarrier) CarryOut(f *queue.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case queue.Attempt, queue.Reply:
		panic("BUG: an effect about an acquire")
	case queue.Subscribe:
		c.Calls.Client.Node(channel).Subscribe(channel)
	case queue.Unsubscribe:
		c.Calls.Client.Node(channel).Unsubscribe(channel)
	case queue.SetTimer:
		c.setTimer(q, f)
	case queue.StopTimers:
		stopTimers(q)
	case queue.Tidy:
		c.Calls.Clock.AfterFunc(f.Delay, func() { c.Step((*queue.Set).TidyDue) })
	case queue.Patience:
		c.Calls.Clock.AfterFunc(f.Delay, func() { c.Step(func(s *queue.Set) { s.PatienceDue(key) }) })
	case queue.RemovePlaces:
		c.removePlaces(key)
	case queue.Refresh:
		places := f.Places
		c.Calls.Jobs.Submit(jobs.Renewal, func() { c.refresh(q, places) })
	case queue.ListPlaces:
		c.Calls.Jobs.Submit(jobs.Attempt, func() { c.listPlaces(q) })
	case queue.AskHead:
		class, look := jobs.HandOver, f.Look
		if look {
			class = jobs.Attempt
		}
		c.Calls.Jobs.Submit(class, func() { c.askHead(q, look) })
	case queue.RemoveHead:
		place, force := f.Place, f.Force
		c.Calls.Jobs.Submit(jobs.Attempt, func() { c.removeHead(q, place, force) })
	case queue.GoOn: // a class without backlog
		c.Calls.Jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			c.Step((*queue.Set).Continue)
		})
	}
}

// timers are those of one wait queue.
type timers [queue.TimersCount]jobs.Timer

func (c *effectCarrier) setTimer(q *queue.Queue, f *queue.Effect) {
	all, ok := q.Tag.(*timers)
	if !ok {
		all = &timers{}
		q.Tag = all
	}
	timer, d := f.Timer, f.Delay
	if f.Spread > 0 {
		d += c.Calls.Clock.Random(f.Spread)
	}
	if t := all[timer]; t != nil {
		t.Reset(d)
		return
	}
	all[timer] = c.Calls.Clock.AfterFunc(d, func() { c.Step(func(*queue.Set) { q.TimerDue(timer) }) })
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
