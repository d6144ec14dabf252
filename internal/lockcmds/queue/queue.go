// Package queue decides which waiter asks for its lock, and when. It is a state machine: events come in as calls of the methods of
// Set, and effects go out through Set.Effects. The package does no I/O, has no mutex and reads no clock.
//
//	Join ──► Queue, one for each lock ──► Attempt ──► the caller asks Redis ──► Answered ──► Reply
//	            ▲ a message, the end of the holder's lease, a release here
//
// Two questions have packages of their own, which a Set asks: departures (which places leave the queue in Redis together) and reaper
// (whether the head of a free lock's queue is dead).
//
// A kind says how waiters take turns. Waiters of a kind with own places stand in the queue in Redis, each by its own name, and are
// woken by that name. The others share one place there, and only the first of them asks.
//
// The caller serializes all calls. It carries out the effects in their order, and may do so later. An answer for a queue that has
// ended is ignored.
//
// Invariants:
//   - Each waiter that has joined gets one Reply, and no effect after it.
//   - A waiter has at most one attempt on its way. If it is woken meanwhile, another attempt follows.
//   - No attempt begins before the waiter's subscriptions are confirmed. The confirmation causes one.
//   - Waiters of one kind ask in the order in which they joined, but for those that are woken by name.
//   - Each event costs O(1), or O(1) for each waiter that it concerns. Work for many waiters is done in slices: Continue.
package queue

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/departures"
	"github.com/lockproxy/lockproxy/internal/lockcmds/line"
	"github.com/lockproxy/lockproxy/internal/lockcmds/reaper"

	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// Kind is one sort of lock as far as waiting goes.
type Kind struct {
	// OwnPlace: each waiter has a place of its own in the queue in Redis. Otherwise the waiters here share one place.
	OwnPlace bool
}

// The kinds.
var (
	Plain = &Kind{}
	Fair  = &Kind{OwnPlace: true}
)

// Names are the names of one lock that waiting needs.
type Names struct {
	Key     string
	Channel string // on which a release is announced
	Place   string // the place that the waiters here share in the queue in Redis
	Wake    string // the channel on which the first in Redis's queue is woken, if that is Place
}

// Waiter is one acquire that waits, or may have to. The caller sets the exported fields before its first event.
type Waiter struct {
	Kind  *Kind
	Owner string
	Place string // under which the owner stands in the queue in Redis
	Wake  string // the channel on which it is woken by name
	Tag   any    // the caller's own

	queue *Queue // nil: it has not joined, or has been removed
	sub   *subscription

	Shared bool // other sessions may hold the lock for the same owner: the waiter is woken by the owner's name too
	Placed bool // it may have taken its own place in Redis

	state   state
	woken   bool    // while an attempt was on its way
	doubt   bool    // an attempt was not answered: it is unknown whether the waiter has the lock
	pending Outcome // how it leaves if the attempt on its way comes to nothing
	err     error   // of pending
	turn    turn    // of the attempt on its way

	inLine, inSub, inPlace, inSet line.Node[*Waiter]
}

// state says what may happen to a waiter.
type state uint8

const (
	outside state = iota // of every queue
	waiting              // wake-ups, its deadline, the end of its client
	asking               // an attempt is on its way, or it may be the next in a hand-over
)

// turn is what an attempt of the first waiter at the shared place does for all of them.
type turn struct {
	first   bool // it is such an attempt
	stays   bool // the place stays in the queue if the lock is granted
	enqueue bool // the place is taken if the lock is not granted
}

// Named reports whether the waiter is woken by name: in its turn, or with others of its owner.
func (w *Waiter) Named() bool { return w.Kind.OwnPlace || w.Shared }

// Waits reports whether the waiter is in a queue.
func (w *Waiter) Waits() bool { return w.queue != nil }

// Asks reports whether an attempt of the waiter is on its way, and whether another follows.
func (w *Waiter) Asks() (asks, again bool) { return w.state == asking, w.woken }

// InDoubt reports whether an attempt of the waiter was not answered.
func (w *Waiter) InDoubt() bool { return w.doubt }

// First reports whether its attempt on its way is made at the shared place; stays and enqueue say what becomes of the place if the
// lock is granted, and if it is not.
func (w *Waiter) First() (first, stays, enqueue bool) {
	return w.turn.first, w.turn.stays, w.turn.enqueue
}

// Outcome is how a waiter leaves its queue.
type Outcome uint8

// The outcomes.
const (
	None    Outcome = iota // it waits
	Granted                // it has the lock
	Null                   // it may not wait any longer
	Error                  // the same, with an error for the reason
	Gone                   // its client has gone: no reply is sent
)

// Queue is the waiters of one lock. It exists while there are any.
type Queue struct {
	set   *Set
	names Names
	Tag   any // the caller's own

	shared line.Line[*Waiter] // of those who share a place: only the first asks, one attempt at a time
	own    line.Line[*Waiter] // of those with places of their own

	base   *subscription // of Names.Channel
	denied error         // why Redis does not let us listen to it; nil: it does
	place  turns.Crowd   // the shared place in Redis
	byName *subscription // of Names.Wake; nil: it was not needed yet
	woken  bool          // a message or a timer has come since the latest attempt of shared
	timed  bool          // the timer Expiry has been set
	pause  time.Duration // after an error; 0: the latest attempt was answered

	places     map[string]*line.Line[*Waiter] // of own: the waiters by place
	refreshing bool                           // the timer Refresh is set, or its answer is on its way
	reaper     reaper.Reaper
	ended      bool

	index            int // in Set.list
	inBase, inByName line.Node[*Queue]
}

// Names returns the names of the lock.
func (q *Queue) Names() Names { return q.names }

// Len is how many waiters there are, and how many of them have places of their own.
func (q *Queue) Len() (all, own int) { return q.shared.Len() + q.own.Len(), q.own.Len() }

// First returns the waiters that have joined the queue first: of those who share a place, and of the others. nil: there is none.
func (q *Queue) First() (shared, own *Waiter) { return q.shared.First(), q.own.First() }

// Settled reports whether all subscriptions are confirmed and no waiter asks.
func (q *Queue) Settled() bool {
	for _, w := range q.appendAll(nil) {
		if w.state == asking || w.sub != nil && !w.sub.ready {
			return false
		}
	}
	return q.base.ready && (q.byName == nil || q.byName.ready)
}

// Queued reports whether the shared place is in the queue in Redis, as far as is known.
func (q *Queue) Queued() bool { return q.place.Queued() }

// queued reports whether a waiter here has a place in Redis.
func (q *Queue) queued() bool { return q.own.Len() > 0 || q.place.Queued() }

func (q *Queue) line(k *Kind) *line.Line[*Waiter] {
	if k.OwnPlace {
		return &q.own
	}
	return &q.shared
}

// Config configures a Set. All fields are required.
type Config struct {
	Lease     time.Duration // a lock is looked at once in that time in any case
	Wait      time.Duration // what deadlines of places in Redis are counted in
	StaleHead time.Duration // after this time the head of a free lock's queue without a subscriber is stale
}

// Set is the queues of all locks of one engine.
type Set struct {
	config  Config
	queues  map[string]*Queue
	subs    map[string]*subscription
	leaving *departures.Set[Effect]
	waiters line.Line[*Waiter] // of all queues, in the order in which they joined
	list    []*Queue           // the queues in no order, so that they can be walked in slices
	idle    idleSubscriptions
	backlog []task
	going   bool // Continue is on its way
	effects []Effect
}

// New returns a set without queues.
func New(c Config) *Set {
	s := &Set{config: c, queues: make(map[string]*Queue), subs: make(map[string]*subscription)}
	s.leaving = departures.New(departures.Hooks[Effect]{
		Remove:   func(key string) { s.emit(Effect{Op: RemovePlaces, Key: key}) },
		Wait:     func(key string, d time.Duration) { s.emit(Effect{Op: Patience, Key: key, Delay: d}) },
		Send:     s.emit,
		Occupied: s.occupied,
	})
	return s
}

// Find returns the queue of a lock; nil: no waiter is here.
func (s *Set) Find(key string) *Queue { return s.queues[key] }

// Len is how many queues there are.
func (s *Set) Len() int { return len(s.queues) }

// Waiters is how many waiters there are in all queues.
func (s *Set) Waiters() int { return s.waiters.Len() }

// Oldest is the waiter that has joined first; nil: none waits.
func Oldest(s *Set) *Waiter { return s.waiters.First() }

// Queues is the queues in no order, for callers that walk them backwards in slices. If a queue ends, the last one takes its place. The caller
// does not change or keep it.
func Queues(s *Set) []*Queue { return s.list }

// Denied is the error with which Redis refuses the subscriptions of the lock; nil: it does not.
func (s *Set) Denied(key string) error {
	if q := s.queues[key]; q != nil {
		return q.denied
	}
	return nil
}

// MayJoin reports whether a waiter may join those who share the place without asking Redis first: they go before it, and what
// wakes them will wake it when its turn comes.
func (s *Set) MayJoin(key string, k *Kind) bool {
	q := s.queues[key]
	return !k.OwnPlace && q != nil && q.shared.Len() > 0 && q.base.ready && q.pause == 0
}
