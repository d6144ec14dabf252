package waiters

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
)

func TestAWaiterSubscribesBeforeItsDecidingAttempt(t *testing.T) {
	w := newWorld(t)
	a := w.client(1)
	a.sends("LOCK k")
	a.answered(busy(20*time.Second), nil)
	if len(w.wanted) != 1 || w.wanted[0] != channel() || len(w.asked) != 0 {
		t.Fatalf("wanted %q, asked %q", w.wanted, w.asked)
	}
	w.answers = append(w.answers, grantOfFence(8))
	w.confirm()
	a.got(":8")
}

func TestAFairWaiterLeavesTheQueueWhenItsClientHasGone(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "FAIRLOCK k")
	a.ended = true
	w.x.Left(1)
	w.asked, w.answers = nil, []any{contract.ErrUnsent, numbers(1)}
	w.work()
	w.pass(time.Second)
	if len(w.asked) != 2 || w.asked[0] != "leave" || !w.x.Empty() {
		t.Errorf("asked %q", w.asked)
	}
}

func TestThePlacesOfFairWaitersAreRefreshed(t *testing.T) {
	w := newWorld(t)
	w.waits(1, "FAIRLOCK k")
	w.asked = nil
	refreshed := 0
	for range 21 {
		w.answers = append(w.answers, busy(20*time.Second))
	}
	w.pass(101 * time.Second)
	for _, name := range w.asked {
		if name == "refresh" {
			refreshed++
		}
	}
	if refreshed != 1 {
		t.Errorf("refreshed %d times in a third of the time: %q", refreshed, w.asked)
	}
}
