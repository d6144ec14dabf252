package waiters

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/names"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// channel is that of the lock k.
func channel() string { return names.Channel("k") }

func TestAMessageCausesAnAttemptThatIsGranted(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k")
	w.answers = []any{grantOfFence(8)}
	w.x.Published(channel())
	w.work()
	a.got(":8")
	if w.holds.Len() != 1 || !w.x.Empty() {
		t.Errorf("%d holds, no waiter: %v", w.holds.Len(), w.x.Empty())
	}
}

func TestTheEndOfTheHoldersLeaseCausesAnAttempt(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k")
	w.answers = []any{grantOfFence(8)}
	w.pass(19 * time.Second)
	a.got()
	w.pass(2 * time.Second)
	a.got(":8")
}

func TestAnAttemptThatFailsIsMadeAgainAfterAPause(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k")
	w.answers = []any{contract.ErrUnsent, contract.ErrInDoubt, grantOfFence(8)}
	w.x.Published(channel())
	w.work()
	a.got()
	w.pass(time.Second)
	a.got(":8")
}

// An attempt was not answered, so the client may hold the lock: null is the reply behind the rollback.
func TestAWaiterInDoubtIsRolledBackBeforeItsReply(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k WAIT 5000")
	w.x.Published(channel())
	w.pass(4 * time.Second) // no attempt is answered
	w.answers = nil
	w.pass(1500 * time.Millisecond)
	a.got()
	w.answers = []any{numbers(1), numbers(1)}
	w.pass(2 * time.Second)
	a.got("(nil)")
	if last := w.asked[len(w.asked)-1]; last != "drop" && last != "leave" {
		t.Errorf("the last script is %s", last)
	}
}

func TestAGrantToAWaiterThatHasGoneIsRolledBack(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k")
	w.x.Published(channel()) // the attempt is a job that has not run yet
	a.ended = true
	w.holds.End(1)
	w.x.Left(1)
	w.answers = []any{grantOfFence(8), numbers(1)}
	w.work()
	a.got()
	if w.holds.Len() != 0 || w.asked[len(w.asked)-1] != "drop" {
		t.Errorf("%d holds, asked %q", w.holds.Len(), w.asked)
	}
}

// The first of the plain waiters asks for all of them, so it asks by crowd.lua; a fair one asks for itself.
func TestTheScriptOfAnAttempt(t *testing.T) {
	for line, want := range map[string]string{"LOCK k": "crowd", "FAIRLOCK k": "fair"} {
		w := newWorld(t)
		w.waits(1, line)
		w.asked = nil
		w.x.Wake("k")
		w.work()
		if len(w.asked) != 1 || w.asked[0] != want {
			t.Errorf("%s: %q", line, w.asked)
		}
	}
}

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
