package status

import (
	"testing"
	"time"
)

func TestWaitsAreCountedInTheirBuckets(t *testing.T) {
	var w histogram
	for _, d := range []time.Duration{0, time.Millisecond, time.Millisecond + 1, time.Second, time.Hour} {
		w.add(d)
	}
	got := w.snapshot()
	if got.Count != 5 || got.Sum != time.Hour+time.Second+2*time.Millisecond+1 {
		t.Errorf("%d waits, %s together", got.Count, got.Sum)
	}
	for bound, want := range map[time.Duration]uint64{
		time.Millisecond: 2, 5 * time.Millisecond: 3, 500 * time.Millisecond: 3, time.Second: 4, 2 * time.Minute: 4,
	} {
		if got.Buckets[bound] != want {
			t.Errorf("%d took at most %s, want %d", got.Buckets[bound], bound, want)
		}
	}
	if len(got.Buckets) != len(waitBounds) {
		t.Errorf("%d buckets", len(got.Buckets))
	}
}
