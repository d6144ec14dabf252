package table

import (
	"time"
)

// Config configures a Table. All fields are required.
type Config struct {
	Lease     time.Duration // a lock is looked at once in that time in any case
	Wait      time.Duration // what deadlines of places in Redis are counted in
	StaleHead time.Duration // after this time the head of a free lock's queue without a subscriber is stale
}

// Table is the locks of one engine: who holds them, and who waits for them. Its methods are those of its parts, and two
// that look at both. They are called one at a time.
type Table struct {
	*effects
	holders
	waits

	searches uint64 // for circles
}

// holders is the holds of all locks. They know no waiters but the acquires that are to deepen a hold.
type holders struct {
	lossBook

	locks  locks
	holds  []*Hold   // in no order, so that they can be walked in slices
	counts []counted // of holds
}

// waits is the waiters for all locks. It knows no holds.
type waits struct {
	channels
	leaving
	backlog
	*effects

	config    Config
	locks     locks
	queues    []*Queue      // in no order, so that they can be walked in slices
	waiters   line[*Waiter] // of all queues, in the order in which they joined
	lingering line[*Queue]  // at most lingerLimit
	stopped   bool          // RemoveAll was called: no queue lingers
}

// New returns an empty table.
func New(c Config) *Table {
	all, locks := &effects{}, locks{}
	t := &Table{
		effects: all,
		holders: holders{lossBook: lossBook{effects: all}, locks: locks},
		waits: waits{
			effects: all, config: c, locks: locks,
			channels: channels{effects: all, byName: map[string]*channel{}},
			leaving:  leaving{effects: all, byLock: map[string]*departures{}},
			backlog:  backlog{effects: all},
		},
	}
	t.leaving.occupied = t.waits.occupied
	return t
}

// Queue returns the wait queue of a lock; nil: there is none, and no waiter is here.
func (t *waits) Queue(key string) *Queue { return t.locks[key].queue }

// Waiters is how many waiters there are in all queues.
func (t *waits) Waiters() int { return t.waiters.Len() }

// Oldest is the waiter that has joined first; nil: none waits.
func (t *waits) Oldest() *Waiter { return t.waiters.First() }

// Queues is the queues in no order, for callers that walk them backwards in slices. If a queue ends, the last one takes
// its place. The caller does not change or keep it.
func (t *waits) Queues() []*Queue { return t.queues }

// Denied is the error with which Redis refuses the subscriptions of the lock; nil: it does not.
func (t *waits) Denied(key string) error {
	if q := t.locks[key].queue; q != nil {
		return q.denied
	}
	return nil
}

// MayJoin reports whether a waiter may join the waiters that share the place without asking Redis first: those go
// before it, and the same messages wake it when its turn comes. If they wait for a key of another type, Redis's word is
// not the same for both.
func (t *waits) MayJoin(w *Waiter) bool {
	q := t.locks[w.Lock].queue
	if w.Fair || q == nil || !q.base.ready || q.pause > 0 {
		return false
	}
	first := q.plain.First()
	return first != nil && first.Kind.Reenters() == w.Kind.Reenters()
}
