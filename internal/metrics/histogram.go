package metrics

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Waits is a snapshot of a Histogram.
type Waits struct {
	Count   uint64
	Sum     time.Duration
	Buckets map[time.Duration]uint64 // the number of durations of at most the key
	Native  map[int]int64            // the number of durations in each native bucket of NativeSchema that has some
}

// waitBounds are the upper bounds of all buckets but the last: from an uncontended grant, which takes one round trip,
// to a wait or a hold of an hour.
var waitBounds = [...]time.Duration{
	50 * time.Microsecond, 100 * time.Microsecond, 200 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2 * time.Millisecond, 5 * time.Millisecond, 10 * time.Millisecond, 20 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 200 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2 * time.Second, 5 * time.Second, 10 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 10 * time.Minute, time.Hour,
}

// NativeSchema is the resolution of Waits.Native, in Prometheus's terms. Native buckets grow by the factor 2^(1/4):
// from 2^-20 s, about a microsecond, to 2^12 s, more than an hour.
const NativeSchema = 2

const (
	nativeFirst = -20 << NativeSchema // the number of the first bucket
	nativeCount = 32 << NativeSchema
)

// nativeEnds are the upper bounds of the native buckets.
var nativeEnds = func() (ends [nativeCount]time.Duration) {
	for i := range ends {
		ends[i] = time.Duration(math.Exp2(float64(nativeFirst+i)/(1<<NativeSchema)) * float64(time.Second))
	}
	return ends
}()

// nativeIndex is the place of the bucket of a duration in nativeEnds. The number of bits of the nanoseconds leads to
// it, or to one of the four places before it.
func nativeIndex(d time.Duration) int {
	const before = 123 // d of n bits is at least 2^(n-1) ns, and log2(1e9) is 29.9: so its bucket has at least the number 4n - 123
	i := max(0, min(bits.Len64(uint64(max(d, 0)))<<NativeSchema-before-nativeFirst, nativeCount-1))
	for i < nativeCount-1 && d > nativeEnds[i] {
		i++
	}
	return i
}

// Histogram counts durations by the bounds of their buckets. INFO reads it, too; a histogram of client_golang is read by
// way of protobuf only.
type Histogram struct {
	buckets [len(waitBounds) + 1]atomic.Uint64
	native  [nativeCount]atomic.Int64
	sum     atomic.Int64 // nanoseconds
}

// Add counts a duration.
func (w *Histogram) Add(d time.Duration) {
	i := 0
	for i < len(waitBounds) && d > waitBounds[i] {
		i++
	}
	w.buckets[i].Add(1)
	w.native[nativeIndex(d)].Add(1)
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
	out.Native = map[int]int64{}
	for i := range w.native {
		if n := w.native[i].Load(); n > 0 {
			out.Native[nativeFirst+i] = n
		}
	}
	return out
}
