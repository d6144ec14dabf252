package session

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestTimesAreThoseOfTheProxyAndOfRedis(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stopwatch
		w.Start(3, false)
		time.Sleep(time.Millisecond)
		mark := w.Sent(7)
		time.Sleep(2 * time.Millisecond)
		mark.Note()
		time.Sleep(40 * time.Millisecond)
		if w.Expects(6) || !w.Expects(7) || w.Begun() || w.Ends() {
			t.Error("it waits for another reply")
		}
		w.Replied()
		time.Sleep(5 * time.Millisecond)
		if !w.Ends() {
			t.Error("it does not end with the output")
		}
		if class, proxy, upstream, ok := w.Done(); class != 3 || proxy != 8*time.Millisecond || upstream != 40*time.Millisecond || !ok {
			t.Errorf("class %d: %s in the proxy, %s at Redis, %v", class, proxy, upstream, ok)
		}
		if w.Ends() || w.Expects(7) {
			t.Error("it goes on")
		}
	})
}

// The next command may be measured before the end of the one before it is seen, and its mark may be noted late.
func TestAMeasurementWithoutAMomentIsGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w stopwatch
		w.Start(0, false)
		w.Sent(1)
		w.Replied()
		if _, _, _, ok := w.Done(); ok {
			t.Error("measured without a mark")
		}
		w.Start(0, false)
		mark := w.Sent(2)
		w.Replied()
		time.Sleep(time.Millisecond)
		mark.Note()
		if _, _, _, ok := w.Done(); ok {
			t.Error("measured a reply that came before its command was sent")
		}
	})
}
