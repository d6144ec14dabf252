package observe

import (
	"sync"
	"sync/atomic"
	"time"
)

// This file remembers the latest waits for locks and holds of locks that have taken longer than a threshold, as Redis's
// SLOWLOG remembers commands. LOCKSLOW shows them. Each user has a Log in each database, so a client sees what its user
// does there. A Shelf keeps the logs, also when their users' engines have ended.
//
//	a wait or a hold ends ──► Wants: one comparison ──► Ended ──► Latest ◄── LOCKSLOW GET
//
// The package does no I/O and starts no goroutine.
//
// Invariants:
//   - An entry never changes, and its texts are short.
//   - No call runs longer under Log.mu than it takes to copy references to the entries.
//   - Beyond a floor the entries of all logs are at most as many as their Budget allows.

// Settings say what is logged.
type Settings struct {
	Wait time.Duration // waits that take longer are logged; 0: none
	Hold time.Duration // holds that take longer are logged; 0: none
	Len  int           // how many entries a log has at most
}

// MaxLen bounds Settings.Len.
const MaxLen = 10_000

// Entry is one slow wait or hold, with short texts.
type Entry struct {
	ID int64 // the numbers of a log grow
	Ending
}

// DefaultBudget is how many entries beyond their floors all logs together have: about 30 MB.
const DefaultBudget = 32 << 10

// floor is how many entries of a log cost the budget nothing.
const floor = 16

// Budget is the entries that the logs of all engines share. Its methods may be called from any goroutine.
type Budget struct{ left atomic.Int64 }

// NewBudget returns a budget of n entries.
func NewBudget(n int64) *Budget {
	b := &Budget{}
	b.left.Store(n)
	return b
}

func (b *Budget) take() bool {
	if b.left.Add(-1) < 0 {
		b.left.Add(1)
		return false
	}
	return true
}

// Log is the entries of one user in one database. Its methods may be called from any goroutine.
type Log struct {
	settings func() Settings // the present ones
	budget   *Budget

	mu      sync.Mutex // a leaf: nothing is called while it is held
	entries []*Entry   // the oldest first
	next    int64      // the ID of the next entry
	charged int64      // to the budget
	closed  bool
}

// New returns an empty log.
func New(b *Budget, settings func() Settings) *Log { return &Log{settings: settings, budget: b} }

var _ Observer = (*Log)(nil)

// Wants reports whether a wait or hold of that length is slow.
func (l *Log) Wants(kind Kind, took time.Duration) bool {
	s := l.settings()
	limit := s.Wait
	if kind == Hold {
		limit = s.Hold
	}
	return limit > 0 && took > limit
}

// Ended adds an entry in place of the oldest ones that do not fit.
func (l *Log) Ended(ending Ending) {
	e := Entry{Ending: ending.Shortened()}
	most := l.settings().Len
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	e.ID = l.next
	l.next++
	l.trim(most - 1)
	if most <= 0 {
		return
	}
	if int64(len(l.entries)) >= floor+l.charged {
		if l.budget.take() {
			l.charged++
		} else {
			l.trim(len(l.entries) - 1)
		}
	}
	l.entries = append(l.entries, &e)
}

// trim drops the oldest entries until n are left. Requires l.mu.
func (l *Log) trim(n int) {
	for len(l.entries) > max(n, 0) {
		l.entries[0] = nil
		l.entries = l.entries[1:]
	}
	if len(l.entries) == 0 {
		l.entries = nil
	}
	if unused := l.charged - max(0, int64(len(l.entries))+1-floor); unused > 0 { // one entry may follow
		l.charged -= unused
		l.budget.left.Add(unused)
	}
}

// Latest returns the n latest entries, the latest first; negative: all. The caller does not change them.
func (l *Log) Latest(n int) []*Entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	if n < 0 || n > len(l.entries) {
		n = len(l.entries)
	}
	latest := make([]*Entry, n)
	for i := range latest {
		latest[i] = l.entries[len(l.entries)-1-i]
	}
	return latest
}

// Len is how many entries there are.
func (l *Log) Len() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset drops all entries.
func (l *Log) Reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty()
}

// Close drops all entries, also those to come.
func (l *Log) Close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty()
	l.closed = true
}

// empty drops all entries. Requires l.mu.
func (l *Log) empty() {
	l.budget.left.Add(l.charged)
	l.entries, l.charged = nil, 0
}
