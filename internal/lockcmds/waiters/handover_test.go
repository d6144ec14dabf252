package waiters

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

func TestAReleaseGrantsTheLockToTheFirstWaiter(t *testing.T) {
	w := newWorld(t)
	a, b := w.waits(1, "LOCK k"), w.client(2)
	holder := w.client(9)
	b.sends("LOCK k") // joins without a script
	o := w.x.Offer("k", "holder", turns.Chain{})
	if o.Empty() || o.Call(script.Release{Key: "k"}).Name() != "handover" {
		t.Fatalf("offer %+v", o)
	}
	o.Answered(holder, script.Released{Status: script.HandedOver, Granted: 8, To: script.ToPlain}, w.now, nil)
	a.got() // not before the session of the holder is unlocked
	holder.unlock()
	a.got(":8")
	b.got()
	if all, _ := w.x.Count("k"); all != 1 || w.holds.Len() != 1 {
		t.Errorf("%d waiters, %d holds", all, w.holds.Len())
	}
}

func TestAReleaseThatIsRefusedLeavesTheWaiterWaiting(t *testing.T) {
	for name, err := range map[string]error{"refused": script.Error("NOPERM no"), "unsent": contract.ErrUnsent, "in doubt": contract.ErrInDoubt} {
		w := newWorld(t)
		a, holder := w.waits(1, "LOCK k"), w.client(9)
		o := w.x.Offer("k", "holder", turns.Chain{})
		o.Answered(holder, script.Released{}, w.now, err)
		holder.unlock()
		w.answers = []any{grantOfFence(8)}
		a.got()
		w.pass(2 * time.Second)
		if a.got(":8"); !w.x.Empty() { // by an attempt of its own
			t.Errorf("%s: the waiter is still there", name)
		}
	}
}

func TestNoOfferWithoutWaiters(t *testing.T) {
	w := newWorld(t)
	if o := w.x.Offer("k", "holder", turns.Chain{}); !o.Empty() {
		t.Error("an offer to no waiter")
	}
	w.waits(1, "LOCK k OWNER me")
	if o := w.x.Offer("k", "me", turns.Chain{}); !o.Empty() {
		t.Error("an offer to the owner that releases")
	}
}
