package status

import (
	"sync/atomic"
	"time"
)

// Waits says how long the waits took that ended with a grant.
type Waits struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[time.Duration]uint64 // the number of waits that took at most the key
}

// waitBounds are the upper bounds of all buckets but the last: from one round trip to a wait that a person notices.
var waitBounds = [...]time.Duration{
	time.Millisecond, 5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 5 * time.Second, 30 * time.Second, 2 * time.Minute,
}

// histogram counts durations by the bounds of their buckets.
type histogram struct {
	buckets [len(waitBounds) + 1]atomic.Uint64
	sum     atomic.Int64 // nanoseconds
}

func (w *histogram) add(d time.Duration) {
	i := 0
	for i < len(waitBounds) && d > waitBounds[i] {
		i++
	}
	w.buckets[i].Add(1)
	w.sum.Add(int64(d))
}

func (w *histogram) snapshot() Waits {
	out := Waits{Sum: time.Duration(w.sum.Load()), Buckets: make(map[time.Duration]uint64, len(waitBounds))}
	for i := range w.buckets {
		out.Count += w.buckets[i].Load()
		if i < len(waitBounds) {
			out.Buckets[waitBounds[i]] = out.Count
		}
	}
	return out
}
