package metrics

import (
	"sync/atomic"
	"time"
)

// Waits is a snapshot of a Histogram.
type Waits struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[time.Duration]uint64 // the number of durations of at most the key
}

// waitBounds are the upper bounds of all buckets but the last: from an uncontended grant, which takes one round trip,
// to a wait or a hold of an hour.
var waitBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond,
	10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second,
	time.Minute, 2 * time.Minute, 10 * time.Minute, time.Hour,
}

// Histogram counts durations by the bounds of their buckets. INFO reads it, too; a histogram of client_golang is read
// by way of protobuf only.
type Histogram struct {
	buckets [len(waitBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

// Add counts a duration.
func (w *Histogram) Add(d time.Duration) {
	i := 0
	for i < len(waitBounds) && d > waitBounds[i] {
		i++
	}
	w.buckets[i].Add(1)
	w.sum.Add(int64(d))
}

// Snapshot is what was counted so far.
func (w *Histogram) Snapshot() Waits {
	out := Waits{Sum: time.Duration(w.sum.Load()), Buckets: make(map[time.Duration]uint64, len(waitBounds))}
	for i := range w.buckets {
		out.Count += w.buckets[i].Load()
		if i < len(waitBounds) {
			out.Buckets[waitBounds[i]] = out.Count
		}
	}
	return out
}
