// Package admission gives out bounded places: it says which owner may take one more, which waiting owner is next when
// one becomes free, and which unused thing goes first when a place is needed. It does no I/O, knows no time, and is not
// safe for concurrent use: its callers have a lock. Turns are for goroutines that compute.
package admission

import (
	"runtime"
	"time"
)

// Turns let few goroutines compute at a time, in the order of their arrival, so that event loops have processors to run
// on. nil is no limit.
type Turns chan struct{}

// NewTurns leaves half of the processors to others.
func NewTurns() Turns { return make(Turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// Take waits for a turn. Leave follows.
func (t Turns) Take() {
	if t != nil {
		t <- struct{}{}
	}
}

// TakeBy waits for a turn until that time. Leave follows if it reports that there is one.
func (t Turns) TakeBy(by time.Time) bool {
	if t == nil {
		return true
	}
	select {
	case t <- struct{}{}:
		return true
	default:
	}
	end := time.NewTimer(time.Until(by))
	defer end.Stop()
	select {
	case t <- struct{}{}:
		return true
	case <-end.C:
		return false
	}
}

// Leave ends a turn.
func (t Turns) Leave() {
	if t != nil {
		<-t
	}
}
