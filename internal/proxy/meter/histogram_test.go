package meter

import (
	"math"
	"testing"
	"time"
)

func TestNativeBucketsGrowByAFourthOfAnOctave(t *testing.T) {
	last := nativeFirst
	for d := time.Duration(1); d < 3*time.Hour; d += d/50 + 1 {
		n := nativeBucket(d)
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
	if n := nativeBucket(time.Second); n != 0 {
		t.Errorf("a second is in bucket %d, want 0", n)
	}
}
