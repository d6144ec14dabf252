package lockcmds

import (
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// This file is the shell of package queue: it carries out LOCK, TRYLOCK and FAIRLOCK from the first attempt to the
// reply. One value serves the sessions of one lock engine.
//
//	Start ──► Claim ──► one script on the session's own lane or pin ──► Answered ──granted──────┐
//	  │ plain waiters are here already                    │ busy, and the client may wait             │
//	  └─────────────────────► await ◄─────────────────────┘                                           │
//	                            │ Join                                                                ▼
//	                            ▼                                                                  granted ──► Claim.Granted
//	                      package queue ──► its effects                                               ▲              │
//	                            ▲             Subscribe ──► package effects ──► Confirmed, Published  │              ▼
//	                            │             Attempt ──► one script, as a job ──► table.Answered ─► deliver      reply
//	                            │             Reply ──► leftLocked ──► without: null or an error      ▲
//	granted ──SYNC──► Confirmer ──► granted again, or dropUnsynced ──► the reply
//	                            └── Offer: a release here grants in the same step ──► Offer.Answered ─┘
//
// acquireTerms works out what the client has asked for, package kinds the scripts that ask. observe.Observers are told
// of each grant, and of each wait without one.
//
// The package stands above Holds, which knows neither waiters nor this package. An acquire reaches the record of holds
// only through its Claim.
//
// Goroutines: none of its own. Work is done by timers and by jobs on the pool, each at most one round trip long.
// Waiters are data.
//
// waiters.mu guards the wait queues and all waiters. Jobs are submitted and channels are subscribed under it. No
// session method, Redis call or callback runs under it, and no method of Holds that takes a mutex. Events and observers
// are told under it: they do not block.
//
// Invariants:
//   - Every grant ends in the client's reply with the lease watched, or in a rollback.
//   - A waiter gets exactly one reply, unless its session has ended.
//   - A deciding attempt of a waiter begins after the confirmation of its subscription. Every later message, reconnect
//     and end of the holder's lease causes another attempt. A waiter that joins other waiters needs no attempt of its
//     own: the first one has made it.
//   - A null reply means that Redis refused, or that the grant has been rolled back.

// waiterOptions of Waiters. All fields but Replicas, Reentry, Told and the events are required.
type waiterOptions struct {
	Calls  *calls
	Holds  *holds
	Damage *damageReporter
	UUID   string // of this process

	Lease     time.Duration    // a lock with waiters is looked at once in that time
	Defaults  func() *Defaults // the present ones, which do not change
	FairWait  time.Duration    // the unit of deadlines in the fair queue
	StaleHead time.Duration    // after this time the head of a free lock's fair queue without a subscriber is stale

	Waiting *atomic.Int64 // counts the waiters of all engines that share MaxWaiters

	Confirm *confirmer
	// Replicas is how many replicas the server that keeps a lock has, by the word of the operator or of the topology:
	// also those that the server does not see. 0: it is not known. nil: it never is.
	Replicas func(lock string) int

	// Reentry is the rule about a connection that acquires again without OWNER. nil: it may.
	Reentry *ReentryRule
	Told    observe.Observers // of the ends of acquires
	Events  waiterEvents
}

// waiterEvents are called at what metrics count. They must not block; nil ones are skipped.
type waiterEvents struct {
	Granted    func(v grammar.Verb, waited time.Duration)  // a lock was acquired, so long after it was asked for
	HandedOver func(took time.Duration)                    // by a release that granted in the same step, from sending it to its answer
	Left       func(o table.Outcome, waited time.Duration) // a waiter has left its wait queue; the time counts from its command
	Attempt    func()                                      // one script for a waiter
	// Refused: a client may not wait. limit is the setting that too many waiters have reached; empty: the proxy stops.
	Refused func(limit, client string)
}

// waiters is the acquires in progress of one engine, with their wait queues. Its methods may be called from any
// goroutine.
type waiters struct {
	waiterOptions               // immutable
	place         string        // immutable; the name of the place that plain waiters share in a queue in Redis
	effects       effectCarrier // immutable

	mu       sync.Mutex // guards the fields below and all waiters
	set      *table.Set
	asks     map[uint64]*waiter // the acquires in progress, by session
	draining bool               // no client may begin to wait
	waiting  int64              // set.Waiters(), as Options.Waiting counts it
}

// newWaiters returns the waiters of an engine. The caller has redislink call it as a Listener.
func newWaiters(o waiterOptions) *waiters {
	x := &waiters{
		waiterOptions: o,
		place:         script.Shared(o.UUID, uint32(o.Calls.Clock.Random(1<<32))),
		set:           table.NewSet(table.Config{Lease: o.Lease, Wait: o.FairWait, StaleHead: o.StaleHead}),
		asks:          make(map[uint64]*waiter),
	}
	x.effects = effectCarrier{Calls: o.Calls, Wait: o.FairWait, Step: x.Step}
	return x
}

// Step tells the wait queues of an event, and carries out the effects. Requires no locks.
func (x *waiters) Step(event func(q *table.Set)) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stepLocked(event)
}

// stepLocked is Step. Requires waiters.mu.
func (x *waiters) stepLocked(event func(q *table.Set)) {
	event(x.set)
	for {
		all := x.set.Effects()
		if len(all) == 0 {
			break
		}
		for i := range all {
			x.carryOutLocked(&all[i])
		}
		x.set.Done(all)
	}
	if now := int64(x.set.Waiters()); now != x.waiting {
		x.Waiting.Add(now - x.waiting)
		x.waiting = now
	}
}

// carryOutLocked carries out one effect, or has a job do it. Requires waiters.mu.
func (x *waiters) carryOutLocked(f *table.Effect) {
	switch f.Op {
	case table.Attempt:
		w := waiterOf(f.Waiter)
		w.streak = table.Streak{}
		class := jobs.Attempt
		if f.Urgent {
			class = jobs.HandOver
		}
		x.Calls.Jobs.Submit(class.For(w.lock()), w.attempt)
	case table.Finish:
		waiterOf(f.Waiter).leftLocked(f)
	default:
		x.effects.CarryOut(f)
	}
}

// waiterOf is the acquire that waits.
func waiterOf(w *table.Waiter) *waiter { return w.Tag.(*waiter) }

// Confirmed implements redislink.Listener.
func (x *waiters) Confirmed(channel string) {
	x.Step(func(q *table.Set) { q.Subscribed(channel) })
}

// Published implements redislink.Listener.
func (x *waiters) Published(channel, _ string) {
	x.Step(func(q *table.Set) { q.Published(channel) })
}

// Refused implements redislink.Listener.
func (x *waiters) Refused(channel string, reason redislink.Refusal) {
	x.Step(func(q *table.Set) { q.SubscriptionRefused(channel, reason) })
}

// Wake has the first waiters of a lock ask: it may be free. Requires no locks.
func (x *waiters) Wake(lock string) {
	x.Step(func(q *table.Set) { q.Wake(lock) })
}

// Left takes the acquire of a session out whose client has gone. Requires no locks.
func (x *waiters) Left(session uint64) {
	x.mu.Lock()
	w := x.asks[session]
	if w == nil {
		x.mu.Unlock()
		return
	}
	delete(x.asks, session)
	w.ended = true
	fence := w.fence
	x.stepLocked(func(q *table.Set) { q.Left(&w.Waiter) })
	x.mu.Unlock()
	if fence != 0 { // no wait for replicas that may not come
		w.rollBack(fence, nil)
	}
}

// Asks reports whether an acquire of the session is in progress. Requires no locks.
func (x *waiters) Asks(session uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.asks[session] != nil
}

// Unblock ends the wait of a session, as CLIENT UNBLOCK asks: as if its time were up, or with an error. It reports
// whether the session was waiting. Requires no locks.
func (x *waiters) Unblock(session uint64, withError bool) (waited bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.asks[session]
	if w == nil {
		return false
	}
	x.stepLocked(func(q *table.Set) {
		if withError {
			waited = q.Remove(&w.Waiter, table.Error, errUnblocked)
		} else {
			waited = q.Remove(&w.Waiter, table.Null, nil)
		}
	})
	return waited
}

// Drain refuses all waiters, and those to come. Requires no locks.
func (x *waiters) Drain() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.draining = true
	x.stepLocked(func(q *table.Set) { q.RemoveAll(errDraining) })
}

var (
	errDraining  = errors.New("the proxy is shutting down, connect again")
	errUnblocked = script.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
)

// Empty reports whether no client waits. Requires no locks.
func (x *waiters) Empty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.set.Waiters() == 0
}

// Count is the number of waiters of a lock, and the number of those with places of their own. Requires no locks.
func (x *waiters) Count(lock string) (all, own int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.countLocked(lock)
}

func (x *waiters) countLocked(lock string) (all, own int) {
	if q := x.set.Find(lock); q != nil {
		return q.Len()
	}
	return 0, 0
}

// CountAll sets the numbers of waiters in a slice of a list of locks. Requires no locks.
func (x *waiters) CountAll(list []lockInfo) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range list {
		all, own := x.countLocked(list[i].Key)
		list[i].Fair, list[i].Local = int64(own), int64(all)
	}
}

// fullLocked says why no further client may wait for this lock now, and names the setting that is the reason; empty:
// one may. Requires waiters.mu.
func (x *waiters) fullLocked(lock string) (why, limit string) {
	if x.draining {
		return errDraining.Error(), ""
	}
	all, _ := x.countLocked(lock)
	d := x.Defaults()
	return d.Full(x.Waiting.Load(), all)
}

// namesOfLocked returns the names that waiting for a lock needs. Requires waiters.mu.
func (x *waiters) namesOfLocked(lock string) table.Names {
	if q := x.set.Find(lock); q != nil {
		return q.Names()
	}
	n := script.ForWaiters(lock)
	return table.Names{Key: lock, Channel: n.Channel, Place: n.PlaceOf(x.place), Wake: n.NameChannel(x.place)}
}

// Contended is one lock that clients wait for through this engine.
type Contended struct {
	Key    string
	All    int       // waiters
	Own    int       // of these, those with places of their own in the queue in Redis
	Oldest time.Time // when the command came that waits for longest
}

// Contended appends the locks with waiters before place end of their list, the last first, Slice of them at most. It
// returns up to where it has come; end -1 begins, and 0 is the end. A lock that has waiters all the time is seen though
// others come and go. It may be seen twice. Requires no locks.
func (x *waiters) Contended(slice []Contended, end int) ([]Contended, int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	all := table.Queues(x.set)
	if end < 0 || end > len(all) {
		end = len(all)
	}
	begin := max(0, end-listSlice)
	for _, q := range all[begin:end] {
		c := Contended{Key: q.Names().Key}
		if c.All, c.Own = q.Len(); c.All == 0 {
			continue
		}
		for _, w := range firstOf(q) {
			if c.Oldest.IsZero() || w.began.Before(c.Oldest) {
				c.Oldest = w.began
			}
		}
		slice = append(slice, c)
	}
	return slice, begin
}

// firstOf lists the waiters of a queue that are the first of their kind.
func firstOf(q *table.Queue) (first []*waiter) {
	shared, own := q.First()
	for _, w := range []*table.Waiter{shared, own} {
		if w != nil {
			first = append(first, waiterOf(w))
		}
	}
	return first
}

// Oldest is when the command came of the client that has waited for longest; the zero time: none waits. It costs O(1).
// Requires no locks.
func (x *waiters) Oldest() (began time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if w := table.Oldest(x.set); w != nil {
		began = waiterOf(w).began
	}
	return began
}

// WaitsFor returns the lock that a session asks for, and when its command came. false: it asks for none. Requires no
// locks of this package.
func (x *waiters) WaitsFor(session uint64) (lock string, since time.Time, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	w := x.asks[session]
	if w == nil {
		return "", time.Time{}, false
	}
	return w.lock(), w.began, true
}
