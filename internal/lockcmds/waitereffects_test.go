package lockcmds

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

func TestAFairWaiterLeavesTheQueueWhenItsClientHasGone(t *testing.T) {
	w := newLockWorld(t)
	a := w.waits(1, "FAIRLOCK k")
	a.Ended = true
	w.Ended(1)
	w.Own.Asked, w.Own.Answers = nil, []any{contract.ErrUnsent, locktest.Numbers(1)}
	w.Work()
	w.Pass(time.Second)
	if len(w.Own.Asked) != 2 || w.Own.Asked[0] != "leave" || !w.noWaiter() {
		t.Errorf("asked %q", w.Own.Asked)
	}
}

func TestThePlacesOfFairWaitersAreRefreshed(t *testing.T) {
	w := newLockWorld(t)
	w.waits(1, "FAIRLOCK k")
	w.Own.Asked = nil
	refreshed := 0
	for range 21 {
		w.Own.Answers = append(w.Own.Answers, busy(20*time.Second))
	}
	w.Pass(101 * time.Second)
	for _, name := range w.Own.Asked {
		if name == "refresh" {
			refreshed++
		}
	}
	if refreshed != 1 {
		t.Errorf("refreshed %d times in a third of the time: %q", refreshed, w.Own.Asked)
	}
}
