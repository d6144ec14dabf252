package tasks

import "runtime"

// Turns let few goroutines compute at a time, in the order of their arrival, so that event loops have processors to run on. nil is no limit.
type Turns chan struct{}

// NewTurns leaves half of the processors to others.
func NewTurns() Turns { return make(Turns, max(1, runtime.GOMAXPROCS(0)/2)) }

// Take waits for a turn. Leave follows.
func (t Turns) Take() {
	if t != nil {
		t <- struct{}{}
	}
}

// Leave ends a turn.
func (t Turns) Leave() {
	if t != nil {
		<-t
	}
}
