package lockcmds

import (
	"cmp"
	"container/heap"
	"slices"
	"sync"
	"time"
)

// This file lists the locks for which clients of a proxy have waited longest, all their waits together.
//
//	a wait ends ──► the tally of this hour: a lock that is there, or one in place of that with the shortest waits
//	HotLocks    ──► this hour and the one before
//
// A tally has a fixed number of locks, whatever names clients choose. As in the algorithm Space-Saving, a lock that
// comes in begins with the rank of the one that it replaces. So a lock whose waits are more than 1/tallied of all waits
// of the hour is never missing. HotLocks has the time that was counted for the lock itself.

const (
	tallied   = 128       // locks
	tallyTime = time.Hour // of one tally
)

// Account is a user in a database. The default user has no name here.
type Account struct {
	User string
	DB   int
}

// HotLock is a lock for which clients have waited.
type HotLock struct {
	Account
	Key    string
	Waits  int64         // that have ended
	Waited time.Duration // in these waits
}

// Hot is the list of one proxy. The zero value is empty. Its methods may be called from any goroutine, and nil is a
// list that stays empty.
type Hot struct {
	mu        sync.Mutex // a leaf
	began     time.Time  // of now
	now, past tally
}

// Waited counts a wait that has ended at that instant. It costs the logarithm of tallied.
func (h *Hot) Waited(a Account, key string, took time.Duration, at time.Time) {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turn(at)
	h.now.count(hotName{a, key}, took)
}

// turn begins the next tally if it is time. Requires Hot.mu.
func (h *Hot) turn(at time.Time) {
	switch since := at.Sub(h.began); {
	case since >= 2*tallyTime:
		h.now, h.past, h.began = tally{}, tally{}, at
	case since >= tallyTime:
		h.now, h.past, h.began = tally{}, h.now, at
	}
}

// Locks returns the locks with the longest waits that ended in the last one to two hours before that instant, the
// longest first, at most n. of: only those of one account; nil: of all.
func (h *Hot) Locks(n int, at time.Time, of *Account) []HotLock {
	h.mu.Lock()
	h.turn(at)
	sum := map[hotName]HotLock{}
	for _, t := range []*tally{&h.now, &h.past} {
		for _, c := range t.order {
			one := sum[c.name]
			one.Waits += c.waits
			one.Waited += c.waited
			sum[c.name] = one
		}
	}
	h.mu.Unlock()
	var all []HotLock
	for name, one := range sum {
		if of == nil || *of == name.account {
			one.Account, one.Key = name.account, name.key
			all = append(all, one)
		}
	}
	slices.SortFunc(all, func(a, b HotLock) int {
		return cmp.Or(cmp.Compare(b.Waited, a.Waited), cmp.Compare(a.Key, b.Key), cmp.Compare(a.DB, b.DB),
			cmp.Compare(a.User, b.User))
	})
	return all[:min(n, len(all))]
}

type hotName struct {
	account Account
	key     string
}

// countedLock is a lock of a tally.
type countedLock struct {
	name   hotName
	waits  int64
	waited time.Duration
	rank   time.Duration // waited, and the rank of the lock that it has replaced
	at     int           // in tally.order
}

// tally has at most tallied locks. The zero value has none.
type tally struct {
	locks map[hotName]*countedLock
	order byRank
}

func (t *tally) count(name hotName, took time.Duration) {
	c := t.locks[name]
	switch {
	case c != nil:
	case len(t.order) < tallied:
		if t.locks == nil {
			t.locks = map[hotName]*countedLock{}
		}
		c = &countedLock{name: name, at: len(t.order)}
		t.locks[name] = c
		heap.Push(&t.order, c)
	default:
		c = t.order[0]
		delete(t.locks, c.name)
		c.name, c.waits, c.waited = name, 0, 0
		t.locks[name] = c
	}
	c.waits++
	c.waited += took
	c.rank += took
	heap.Fix(&t.order, c.at)
}

// byRank is a heap of the locks, that with the lowest rank first.
type byRank []*countedLock

func (o byRank) Len() int           { return len(o) }
func (o byRank) Less(i, j int) bool { return o[i].rank < o[j].rank }

func (o byRank) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].at, o[j].at = i, j
}

// Push implements heap.Interface.
func (o *byRank) Push(x any) { *o = append(*o, x.(*countedLock)) }

// Pop implements heap.Interface. No lock leaves.
func (o *byRank) Pop() any { panic("BUG: a lock leaves the tally") }
