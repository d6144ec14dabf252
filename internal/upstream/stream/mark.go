package stream

import (
	"sync/atomic"
	"time"
)

// Mark is the moment at which requests were taken to be written. The zero value has none.
type Mark struct{ at atomic.Int64 }

// epoch is any moment: to measure from it reads only the monotonic clock, which takes half of the time.
var epoch = time.Now()

// Now is the present moment, since the start of the process or so.
func (*Mark) Now() time.Duration { return time.Since(epoch) }

// Note notes the moment.
func (m *Mark) Note() { m.at.Store(int64(m.Now())) }

// At is the moment that was noted, on the clock of Now; 0: none.
func (m *Mark) At() time.Duration { return time.Duration(m.at.Load()) }

// Forget forgets the moment.
func (m *Mark) Forget() { m.at.Store(0) }
