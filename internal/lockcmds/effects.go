package lockcmds

import (
	"runtime"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
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
	Step  func(event func(*table.Set)) // tells the wait queues of an event; requires no locks
}

// CarryOut carries out one effect, or has a job do it. It is called for one effect at a time, and for none of Attempt
// and Reply.
func (c *effectCarrier) CarryOut(f *table.Effect) {
	q, key, channel := f.Queue, f.Key, f.Channel
	switch f.Op {
	case table.Attempt, table.Finish:
		panic("BUG: an effect about an acquire")
	case table.Subscribe:
		c.Calls.Client.Node(channel).Subscribe(channel)
	case table.Unsubscribe:
		c.Calls.Client.Node(channel).Unsubscribe(channel)
	case table.SetTimer:
		c.setTimer(q, f)
	case table.StopTimers:
		stopTimers(q)
	case table.Tidy:
		c.Calls.Clock.AfterFunc(f.Delay, func() { c.Step((*table.Set).TidyDue) })
	case table.Patience:
		c.Calls.Clock.AfterFunc(f.Delay, func() { c.Step(func(s *table.Set) { s.PatienceDue(key) }) })
	case table.RemovePlaces:
		c.removePlaces(key)
	case table.Refresh:
		places := f.Places
		c.submit(jobs.Renewal, q, func() { c.refresh(q, places) })
	case table.ListPlaces:
		c.submit(jobs.Attempt, q, func() { c.listPlaces(q) })
	case table.AskHead:
		class, look := jobs.HandOver, f.Look
		if look {
			class = jobs.Attempt
		}
		c.submit(class, q, func() { c.askHead(q, look) })
	case table.RemoveHead:
		place, force := f.Place, f.Force
		c.submit(jobs.Attempt, q, func() { c.removeHead(q, place, force) })
	case table.GoOn: // a class without backlog
		c.Calls.Jobs.Submit(jobs.Renewal, func() {
			runtime.Gosched()
			c.Step((*table.Set).Continue)
		})
	}
}

// submit has a job do the task, which sends a script about the lock of a queue.
func (c *effectCarrier) submit(class jobs.Class, q *table.Queue, task func()) {
	c.Calls.Jobs.Submit(class.For(q.Names().Key), task)
}

// timers are those of one wait queue.
type timers [table.TimersCount]jobs.Timer

func (c *effectCarrier) setTimer(q *table.Queue, f *table.Effect) {
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
	all[timer] = c.Calls.Clock.AfterFunc(d, func() { c.Step(func(*table.Set) { q.TimerDue(timer) }) })
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
