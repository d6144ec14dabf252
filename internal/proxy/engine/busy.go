package engine

import (
	"sync/atomic"
	"time"
)

// sample is how many rounds stand for the one that is measured. It is odd, so that it does not keep step with rounds of
// two kinds in turn.
const sample = 67

// epoch is any moment: to measure from it reads only the monotonic clock, which takes half of the time.
var epoch = time.Now()

// Meter is the busy time of one loop. The zero value is ready.
//
// It measures one round of many, so that the clock costs a round a few nanoseconds.
//
// Goroutines: none. A loop measures its rounds; any goroutine reads the time.
type Meter struct {
	total atomic.Int64 // nanoseconds

	// Owned by the loop.
	rounds uint8
	began  time.Duration // since epoch
}

// Begin says that a round has work from now on.
func (m *Meter) Begin() {
	if m.rounds == 0 {
		m.began = time.Since(epoch)
	}
}

// End says that the work of the round is done.
func (m *Meter) End() {
	if m.rounds == 0 {
		m.total.Add(sample * int64(time.Since(epoch)-m.began))
	}
	if m.rounds++; m.rounds == sample {
		m.rounds = 0
	}
}

// Time is about how long the loop has been busy since its start.
func (m *Meter) Time() time.Duration { return time.Duration(m.total.Load()) }
