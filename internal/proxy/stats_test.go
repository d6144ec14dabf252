package proxy

import (
	"testing"
	"time"
)

func TestWaitsAreCountedInTheirBuckets(t *testing.T) {
	var w waits
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

func TestTallyForgetsWhatIsZero(t *testing.T) {
	var c tally
	c.add("multi", 2)
	c.add("blpop", 1)
	c.add("multi", -1)
	if got := c.String(); got != "blpop=1,multi=1" || c.sum() != 2 {
		t.Errorf("%s, %d in all", got, c.sum())
	}
	c.add("blpop", -1)
	if got := c.String(); got != "multi=1" {
		t.Error(got)
	}
}
