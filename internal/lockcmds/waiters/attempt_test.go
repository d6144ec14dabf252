package waiters

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/names"
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
