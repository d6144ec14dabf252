package metrics

import (
	"math"
	"testing"
	"time"
)

func TestNativeBucketsGrowByAFourthOfAnOctave(t *testing.T) {
	last := nativeFirst
	for d := time.Duration(1); d < 3*time.Hour; d += d/50 + 1 {
		n := nativeIndex(d) + nativeFirst
		if n < last {
			t.Fatalf("%v is in bucket %d, a shorter one in %d", d, n, last)
		}
		last = n
		if n == nativeFirst || n == nativeFirst+nativeCount-1 {
			continue // these take all that is beyond them
		}
		low, high := math.Exp2(float64(n-1)/(1<<NativeSchema)), math.Exp2(float64(n)/(1<<NativeSchema))
		if s := d.Seconds(); s <= low || s > high*(1+1e-12) {
			t.Fatalf("%v is in bucket %d, from %v to %v s", d, n, low, high)
		}
	}
	for i, end := range nativeEnds[:nativeCount-1] {
		if nativeIndex(end) != i || nativeIndex(end+1) != i+1 {
			t.Errorf("%v ends bucket %d, but is in %d, and %v in %d", end, i, nativeIndex(end), end+1, nativeIndex(end+1))
		}
	}
	if n := nativeIndex(time.Second) + nativeFirst; n != 0 {
		t.Errorf("a second is in bucket %d, want 0", n)
	}
}
