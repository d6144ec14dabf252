package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// channel is that of the lock k.
func channel() string { return script.Channel("k") }

func TestWhatCausesAnAttempt(t *testing.T) {
	message := func(w *lockWorld) { listener{&w.keeper}.Published(channel(), "0"); w.Work() }
	for name, c := range map[string]struct {
		cause   func(w *lockWorld)
		answers []any
		after   time.Duration
	}{
		"a message":                     {message, []any{grantOfFence(8)}, 0},
		"an attempt that failed, later": {message, []any{contract.ErrUnsent, contract.ErrInDoubt, grantOfFence(8)}, time.Second},
		"the end of the holder's lease": {func(w *lockWorld) { w.Pass(19 * time.Second) }, []any{grantOfFence(8)}, 2 * time.Second},
	} {
		w := newLockWorld(t)
		a := w.waits(1, "LOCK k")
		w.Own.Answers = c.answers
		if c.cause(w); c.after > 0 {
			a.got()
			w.Pass(c.after)
		}
		a.got(":8")
		if w.Holds() != 1 || !w.noWaiter() {
			t.Errorf("%s: %d holds, no waiter: %v", name, w.Holds(), w.noWaiter())
		}
	}
}

// A copy of the rollback must not meet the new grant.
func TestAnAcquireWhoseGrantCameTooLateIsANewCall(t *testing.T) {
	w := newLockWorld(t)
	a := w.waits(1, "LOCK k")
	w.Own.Asked, w.Own.Args = nil, nil
	late := func() resp.Value {
		w.Time = w.Time.Add(31 * time.Second)
		return grantOfFence(8)
	}
	w.Own.Answers = []any{late, locktest.Numbers(1), grantOfFence(9)}
	w.wake("k")
	w.Work()
	w.confirm()
	a.got(":9")
	if got := strings.Join(w.Own.Asked, " "); got != "attempt drop attempt" {
		t.Fatalf("the engine asked %s", got)
	}
	first, drop, second := w.Own.Args[0][0], w.Own.Args[1][0], w.Own.Args[2][0]
	if first != drop || first == second {
		t.Errorf("%s asked, %s was dropped, and %s asked then", first, drop, second)
	}
}

// The place of an acquire that has waited leaves the queue before the client is told, whatever the last attempt has
// found.
func TestAnAcquireThatIsRefusedBehindItsWaitKeepsNoPlace(t *testing.T) {
	for name, c := range map[string]struct {
		answer any
		reply  string
	}{
		"an error":                      {resp.Value{Kind: resp.SimpleError, Str: []byte("NOPERM no")}, "-NOPERM no"},
		"an owner that holds it shared": {locktest.Numbers(0, -4), "-" + errHoldsShared.Error()},
	} {
		w := newLockWorld(t)
		a := w.waits(1, "FAIRLOCK k WAIT 60000")
		w.Own.Asked = nil
		pass := func(answer resp.Value) func() resp.Value {
			return func() resp.Value {
				w.Time = w.Time.Add(31 * time.Second)
				return answer
			}
		}
		w.Own.Answers = []any{pass(grantOfFence(8)), pass(locktest.Numbers(1)), c.answer, locktest.Numbers(1)}
		w.wake("k")
		w.Work()
		a.got(c.reply)
		if got := strings.Join(w.Own.Asked, " "); got != "attempt drop attempt leave" {
			t.Errorf("%s: the engine asked %s", name, got)
		}
	}
}

// An attempt was not answered, so the client may hold the lock: that is rolled back, and null is the reply behind the
// first attempt to do so.
func TestAWaiterWithoutAnAnswerIsRolledBack(t *testing.T) {
	w := newLockWorld(t)
	a := w.waits(1, "LOCK k WAIT 5000")
	listener{&w.keeper}.Published(channel(), "0")
	w.Pass(4 * time.Second) // no attempt is answered
	w.Own.Answers = nil
	w.Pass(1500 * time.Millisecond)
	a.got("(nil)")
	w.Own.Asked, w.Own.Answers = nil, []any{locktest.Numbers(1), locktest.Numbers(1), locktest.Numbers(1)}
	w.Pass(5 * time.Second)
	if got := strings.Join(w.Own.Asked, " "); got != "leave drop drop" && got != "drop leave drop" {
		t.Errorf("the engine asked %s: until there is an answer, and once more", got)
	}
}

func TestAReleaseGrantsTheLockToTheFirstWaiter(t *testing.T) {
	w := newLockWorld(t)
	a, b := w.waits(1, "LOCK k"), w.client(2)
	holder := w.client(9)
	b.sends("LOCK k") // joins without a script
	o := w.offer("k", "holder", table.Streak{})
	if o.Empty() || o.With(script.Release{Key: "k"}).Call().Name() != "handover" {
		t.Fatalf("offer %+v", o)
	}
	o.answered(holder, script.Released{Status: script.Freed, Granted: 8, To: script.ToPlain}, w.Time, nil)
	a.got() // not before the session of the holder is unlocked
	holder.Unlock()
	a.got(":8")
	b.got()
	if all := w.count("k"); all != 1 || w.Holds() != 1 {
		t.Errorf("%d waiters, %d holds", all, w.Holds())
	}
}

func TestAReleaseThatIsRefusedLeavesTheWaiterWaiting(t *testing.T) {
	for name, err := range map[string]error{"refused": script.Error("NOPERM no"), "unsent": contract.ErrUnsent, "in doubt": contract.ErrInDoubt} {
		w := newLockWorld(t)
		a, holder := w.waits(1, "LOCK k"), w.client(9)
		o := w.offer("k", "holder", table.Streak{})
		o.answered(holder, script.Released{}, w.Time, err)
		holder.Unlock()
		w.Own.Answers = []any{grantOfFence(8)}
		a.got()
		w.Pass(2 * time.Second)
		if a.got(":8"); !w.noWaiter() { // by an attempt of its own
			t.Errorf("%s: the waiter is still there", name)
		}
	}
}

// The hand-over may have happened, and may still happen until the rollback of the release is answered.
func TestTheWaitersOfALostReleaseAskBehindItsRollback(t *testing.T) {
	w := newLockWorld(t)
	holder := w.client(9).sends("LOCK k")
	holder.answered(grantOfFence(7), nil)
	a := w.waits(1, "LOCK k")
	holder.sends("UNLOCK k")
	w.Own.Asked, w.Own.Answers = nil, []any{contract.ErrUnsent, busy(30 * time.Second), locktest.Numbers(0), grantOfFence(8)}
	holder.Answer(resp.Value{}, contract.ErrInDoubt)
	holder.got(":7", "closed")
	w.Pass(900 * time.Millisecond) // before the rollback is sent once more
	if got := strings.Join(w.Own.Asked, " "); !strings.HasPrefix(got, "drop attempt drop attempt") {
		t.Errorf("the engine asked %s", got)
	}
	a.got(":8")
}
