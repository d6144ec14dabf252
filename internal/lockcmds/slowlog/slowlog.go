// Package slowlog remembers the latest waits for locks and holds of locks that have taken longer than a threshold, as Redis's SLOWLOG
// remembers commands. LOCKSLOW shows them. Each lock engine has a Log of its own, so a client sees what its user does in its database.
//
//	a wait or a hold ends ──► SlowWait, SlowHold: one comparison ──► Add ──► Latest ◄── LOCKSLOW GET
//
// The package does no I/O and starts no goroutine.
//
// Invariants:
//   - An entry never changes, and its texts are short.
//   - No call runs longer under Log.mu than it takes to copy references to the entries.
//   - Beyond a floor the entries of all logs are at most as many as their Budget allows.
package slowlog

import (
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Settings say what is logged.
type Settings struct {
	Wait time.Duration // waits that take longer are logged; 0: none
	Hold time.Duration // holds that take longer are logged; 0: none
	Len  int           // how many entries a log has at most
}

// MaxLen bounds Settings.Len.
const MaxLen = 10_000

// Kind says what was slow.
type Kind string

// The kinds.
const (
	Wait Kind = "wait"
	Hold Kind = "hold"
)

// How a wait or a hold has ended.
const (
	Granted  = "granted"     // a wait: the client got the lock
	TimedOut = "timed-out"   // a wait: the client's time was up, or CLIENT UNBLOCK said so
	Failed   = "error"       // a wait: it was refused
	Released = "released"    // a hold: by its holder
	Lost     = "lost"        // a hold: Entry.Reason says why
	HungUp   = "client-gone" // of both
)

// Elsewhere is the owner of a lock whose holder is no client of the same user at this proxy.
const Elsewhere = "elsewhere"

// Party is an owner with its client connection, for people. Its texts may be empty.
type Party struct {
	Owner      string
	Addr, Name string // of the client
}

// Entry is one slow wait or hold. Add shortens its texts.
type Entry struct {
	ID      int64     // set by Add; the numbers of a log grow
	At      time.Time // its end
	Kind    Kind
	Key     string
	By      Party
	Took    time.Duration
	Outcome string
	Reason  string // of a loss
	Behind  Party  // of a wait: the holder when the wait began
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

// Log is the entries of one lock engine. Its methods may be called from any goroutine; a nil Log has no entries and gets none.
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

// SlowWait reports whether a wait of that length is to be added.
func (l *Log) SlowWait(took time.Duration) bool {
	if l == nil {
		return false
	}
	limit := l.settings().Wait
	return limit > 0 && took > limit
}

// SlowHold reports whether a hold of that length is to be added.
func (l *Log) SlowHold(took time.Duration) bool {
	if l == nil {
		return false
	}
	limit := l.settings().Hold
	return limit > 0 && took > limit
}

// Add adds an entry in place of the oldest ones that do not fit.
func (l *Log) Add(e Entry) {
	for _, text := range []*string{&e.Key, &e.By.Owner, &e.By.Addr, &e.By.Name, &e.Behind.Owner, &e.Behind.Addr, &e.Behind.Name} {
		*text = shortened(*text)
	}
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
	if l == nil {
		return nil
	}
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
	if l == nil {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.entries)
}

// Reset drops all entries.
func (l *Log) Reset() {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.empty()
}

// Close drops all entries, also those to come.
func (l *Log) Close() {
	if l == nil {
		return
	}
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

// longestText is how much of a text an entry keeps, in bytes, as in SLOWLOG.
const longestText = 128

// shortened is a text as SLOWLOG shows it. A long text is not kept in memory.
func shortened(s string) string {
	if len(s) <= longestText {
		return s
	}
	return strings.Clone(s[:longestText]) + "... (" + strconv.Itoa(len(s)-longestText) + " more bytes)"
}
