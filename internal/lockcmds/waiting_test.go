package lockcmds

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

// waits has a client wait for a lock that another proxy's client holds. Its deciding attempt has been answered with
// busy.
func (w *lockWorld) waits(id uint64, line string) *testClient {
	w.t.Helper()
	c := w.client(id)
	c.sends(line)
	c.answered(busy(20*time.Second), nil)
	w.Own.Answers = append(w.Own.Answers, busy(20*time.Second))
	w.confirm()
	c.got()
	return c
}

func TestAWaiterIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	w := newLockWorld(t)
	a := w.waits(1, "LOCK k WAIT 5000")
	w.Pass(4 * time.Second)
	a.got()
	w.Pass(2 * time.Second)
	a.got("(nil)")
	if w.asks(1) || !w.noWaiter() || w.opts.Waiting.Load() != 0 {
		t.Errorf("asks %v, empty %v, %d waiters", w.asks(1), w.noWaiter(), w.opts.Waiting.Load())
	}
}

func TestAWaiterIsUnblocked(t *testing.T) {
	for withError, reply := range map[bool]string{false: "(nil)", true: "-UNBLOCKED client unblocked via CLIENT UNBLOCK"} {
		w := newLockWorld(t)
		a := w.waits(1, "LOCK k")
		if !w.Unblock(1, withError) || w.Unblock(2, withError) {
			t.Error("the wrong session was waiting")
		}
		w.Work()
		a.got(reply)
	}
}

func TestTheNumberOfWaitersIsBounded(t *testing.T) {
	for _, limits := range []Defaults{{MaxWaiters: 1}, {MaxWaitersPerLock: 1}} {
		w := newLockWorld(t)
		w.limits = limits
		w.limits.Lease = 30 * time.Second
		w.waits(1, "FAIRLOCK k")
		b := w.client(2).sends("FAIRLOCK k")
		w.Own.Answers = []any{locktest.Numbers(1)} // to leaving the queue
		b.answered(busy(time.Second), nil)
		w.Pass(time.Second)
		if len(b.Replies) != 1 || b.Replies[0][:12] != "-OVERLOADED " {
			t.Errorf("%+v: %q", limits, b.Replies)
		}
		if all, own := w.countLocked("k"); all != 1 || own != 1 {
			t.Errorf("%d waiters, %d of them fair", all, own)
		}
	}
}

func TestARefusedSubscriptionIsTheReply(t *testing.T) {
	w := newLockWorld(t)
	a := w.client(1).sends("LOCK k")
	a.answered(busy(time.Second), nil)
	listener{&w.keeper}.Refused(w.Wanted[0], "NOPERM no channel")
	w.Work()
	a.got("-NOPERM no channel")
}

func TestSlowWaitsAndHoldsAreLogged(t *testing.T) {
	w := newLockWorld(t)
	w.limits.Slow = 3 * time.Second
	a := w.client(1).sends("LOCK k OWNER me")
	a.answered(grantOfFence(7), nil)
	late, brief := w.waits(2, "LOCK k WAIT 5000"), w.waits(3, "FAIRLOCK k WAIT 900")
	other := w.waits(4, "LOCK other OWNER x WAIT 60000")
	w.Pass(4 * time.Second)
	w.Ended(1)
	w.Pass(2 * time.Second)
	late.got("(nil)")
	brief.got("(nil)")
	w.Unblock(4, true)
	w.Work()
	other.got("-UNBLOCKED client unblocked via CLIENT UNBLOCK")
	granted := w.waits(5, "LOCK last OWNER me")
	w.Pass(4 * time.Second)
	w.Own.Answers = []any{grantOfFence(9)}
	w.wake("last")
	w.Work()
	granted.got(":9")
	want := []string{
		"slow hold key=k owner=me ms=4000 outcome=client_gone",
		"slow wait key=k owner=u:c:2 ms=5000 outcome=timed_out behind=me",
		"slow wait key=other owner=x ms=6000 outcome=error behind=elsewhere",
		"slow wait key=last owner=me ms=4000 outcome=granted behind=elsewhere",
	}
	if diff := cmp.Diff(want, w.slowOnes()); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	hot := []HotLock{
		{Key: "other", Waits: 1, Waited: 6 * time.Second},
		{Key: "k", Waits: 2, Waited: 5950 * time.Millisecond},
		{Key: "last", Waits: 1, Waited: 4 * time.Second},
	}
	if diff := cmp.Diff(hot, w.hot.Locks(10, w.Time, nil)); diff != "" {
		t.Errorf("hot locks (-want +got)\n%s", diff)
	}
}

func TestNoWaitIsSlowWithoutALimit(t *testing.T) {
	w := newLockWorld(t)
	w.waits(1, "LOCK k WAIT 3600000")
	w.Pass(time.Hour)
	if got := w.slowOnes(); got != nil {
		t.Errorf("%q", got)
	}
}

// A hold whose lease is watched for an acquire that is never sent would be renewed for ever.
func TestAnAcquireThatIsNotSentKeepsNoHold(t *testing.T) {
	w := newLockWorld(t)
	a := w.client(1).sends("LOCK k")
	a.answered(grantOfFence(7), nil)
	w.limits.Sync, w.opts.Replicas = SyncAll, func(string) int { return 0 }
	a.sends("LOCK k")
	if len(a.Sent) != 0 || len(a.Replies) != 2 {
		t.Fatalf("sent %d, replies %q", len(a.Sent), a.Replies)
	}
	s, key := w.begin(&a.caller, "k", "")
	w.step(func(l *table.Table) {
		r := l.Release(&s.Session, key, 0)
		l.Released(&r, table.HoldAnswer{Status: table.Held, Fence: 7, Holds: 1, SentAt: w.Time}) // the owner has a hold elsewhere
	})
	if w.Holds() != 0 {
		t.Error("the hold goes on")
	}
}

func TestAWaitThatGoesOnKeepsTheHolderBehindWhichItBegan(t *testing.T) {
	for _, refused := range []bool{false, true} {
		w := newLockWorld(t)
		w.limits.Slow = time.Second
		a := w.client(1).sends("LOCK k WAIT 5000")
		w.sessions[1].asks.behind = &party{owner: "first"} // of a wait that has ended with a grant that came too late
		w.Time = w.Time.Add(2 * time.Second)
		if refused {
			w.limits.MaxWaiters = 1
			w.opts.Waiting.Store(1)
		}
		a.answered(busy(20*time.Second), nil)
		w.Pass(5 * time.Second)
		end := "ms=5000 outcome=timed_out"
		if refused {
			end = "ms=2000 outcome=error"
		}
		want := []string{"slow wait key=k owner=u:b:1 " + end + " behind=first"}
		if diff := cmp.Diff(want, w.slowOnes()); diff != "" {
			t.Errorf("refused: %v: %s", refused, diff)
		}
	}
}
