package observe

import (
	"slices"
	"sync"
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

// Settings say what is logged.
type Settings struct {
	Wait time.Duration // waits that take longer are logged; 0: none
	Hold time.Duration // holds that take longer are logged; 0: none
}

// length is how many entries a log has at most: with as many logs as a proxy may have, about 40 MB.
const length = 128

// Entry is one slow wait or hold, with short texts.
type Entry struct {
	ID int64 // the numbers of a log grow
	Ending
}

// Log is the entries of one user in one database. Its methods may be called from any goroutine.
type Log struct {
	settings func() Settings // the present ones

	mu      sync.Mutex // a leaf: nothing is called while it is held
	entries []*Entry   // the oldest first
	next    int64      // the ID of the next entry
}

// New returns an empty log.
func New(settings func() Settings) *Log { return &Log{settings: settings} }

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

// Ended adds an entry, in place of the oldest one if there are many.
func (l *Log) Ended(ending Ending) {
	e := Entry{Ending: ending.Shortened()}
	l.mu.Lock()
	defer l.mu.Unlock()
	e.ID = l.next
	l.next++
	if len(l.entries) == length {
		l.entries = slices.Delete(l.entries, 0, 1)
	}
	l.entries = append(l.entries, &e)
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
	l.entries = nil
}
