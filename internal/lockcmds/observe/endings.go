// Package observe describes waits for locks and holds of locks at their ends, and tells the observers: the slow log,
// traces. Metrics count by events of their own, which have no texts.
//
//	holds:   a hold ends ──► Wants: comparisons ──► Ending ──► Observer: observe.Log, tracing.Tracer
//	waiters: a wait ends ──┘
//
// The package does no I/O and starts no goroutine. Its mutexes, of Shelf and Log, guard memory only.
package observe

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/logging"
)

// Kind says what has ended.
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
	Lost     = "lost"        // a hold: Ending.Reason says why
	HungUp   = "client-gone" // of both
)

// A HoldEnd is how a hold has ended, for metrics.
type HoldEnd uint8

// The ends of holds.
const (
	ByRelease    HoldEnd = iota
	ByLoss               // the lock was taken away, or its lease has run out against the will of its holder
	ByExpiry             // its fixed lease (PX, EX) has run out
	ByDisconnect         // its client has gone; the lease may go on
)

// HoldEnds has the label of each end.
var HoldEnds = [...]string{ByRelease: "released", ByLoss: "lost", ByExpiry: "expired", ByDisconnect: "client_gone"}

func (e HoldEnd) String() string { return HoldEnds[e] }

// Elsewhere is the owner of a lock whose holder is no client of the same user at this proxy.
const Elsewhere = "elsewhere"

// Party is an owner with its client connection, for people. Its texts may be empty.
type Party struct {
	Owner      string
	Addr, Name string // of the client
}

// Ending is one wait or hold that has ended.
type Ending struct {
	At      time.Time // the end
	Kind    Kind
	Key     string
	Mode    string // of the lock, in the words of LOCKINFO
	By      Party
	Took    time.Duration
	Outcome string
	Reason  string // of a loss
	Fence   int64  // 0: there is none
	Sync    int    // how many replicas had to have the grant
	Behind  Party  // of a wait: the holder when the wait began. Without an owner: the lock was free
}

// Observer takes endings. Its methods may be called from any goroutine, and under the mutex of a lock engine: they do
// not block.
type Observer interface {
	// Wants reports whether the ending of a wait or hold of that length is of interest.
	Wants(kind Kind, took time.Duration) bool

	// Ended takes an ending that is wanted. Its texts may be as long as a client likes: Shortened.
	Ended(e Ending)
}

// Observers are those of one lock engine. The zero value has none.
type Observers []Observer

// Wants reports whether one of them wants the ending of a wait or hold of that length.
func (all Observers) Wants(kind Kind, took time.Duration) bool {
	for _, o := range all {
		if o.Wants(kind, took) {
			return true
		}
	}
	return false
}

// Ended tells those of them that want the ending.
func (all Observers) Ended(e Ending) {
	for _, o := range all {
		if o.Wants(e.Kind, e.Took) {
			o.Ended(e)
		}
	}
}

// longestText is how much of a text Shortened keeps, in bytes, as SLOWLOG does.
const longestText = 128

// Shortened is the ending with its texts as SLOWLOG shows them. A long text is not kept in memory.
func (e Ending) Shortened() Ending {
	for _, text := range []*string{
		&e.Key, &e.By.Owner, &e.By.Addr, &e.By.Name, &e.Behind.Owner, &e.Behind.Addr, &e.Behind.Name,
	} {
		*text = logging.Excerpt(*text, longestText)
	}
	return e
}
