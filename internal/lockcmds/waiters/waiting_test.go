package waiters

import (
	"testing"
	"time"
)

// waits has a client wait for a lock that another proxy's client holds. Its deciding attempt has been answered with busy.
func (w *world) waits(id uint64, line string) *client {
	w.t.Helper()
	c := w.client(id)
	c.sends(line)
	c.answered(busy(20*time.Second), nil)
	w.answers = append(w.answers, busy(20*time.Second))
	w.confirm()
	c.got()
	return c
}

func TestAWaiterIsAnsweredWhenItsTimeIsOver(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k WAIT 5000")
	w.pass(4 * time.Second)
	a.got()
	w.pass(2 * time.Second)
	a.got("(nil)")
	if w.x.Asks(1) || !w.x.Empty() || w.x.Waiting.Load() != 0 {
		t.Errorf("asks %v, empty %v, %d waiters", w.x.Asks(1), w.x.Empty(), w.x.Waiting.Load())
	}
}

func TestAWaiterIsUnblocked(t *testing.T) {
	for withError, reply := range map[bool]string{false: "(nil)", true: "-UNBLOCKED client unblocked via CLIENT UNBLOCK"} {
		w := newWorld(t)
		a := w.waits(1, "LOCK k")
		if !w.x.Unblock(1, withError) || w.x.Unblock(2, withError) {
			t.Error("the wrong session was waiting")
		}
		w.work()
		a.got(reply)
	}
}

func TestADrainRefusesTheWaitersAndThoseToCome(t *testing.T) {
	w := newWorld(t)
	a := w.waits(1, "LOCK k")
	w.x.Drain()
	w.work()
	a.got("-OVERLOADED " + errDraining.Error())
	b := w.client(2)
	b.sends("LOCK k")
	b.answered(busy(time.Second), nil)
	b.got("-OVERLOADED " + errDraining.Error())
}

func TestTheNumberOfWaitersIsBounded(t *testing.T) {
	for _, limits := range []Defaults{{MaxWaiters: 1}, {MaxWaitersPerLock: 1}} {
		w := newWorld(t)
		w.limits = limits
		w.limits.Lease = 30 * time.Second
		w.waits(1, "FAIRLOCK k")
		b := w.client(2)
		b.sends("FAIRLOCK k")
		w.answers = []any{numbers(1)} // to leaving the queue
		b.answered(busy(time.Second), nil)
		w.pass(time.Second)
		if len(b.replies) != 1 || b.replies[0][:12] != "-OVERLOADED " {
			t.Errorf("%+v: %q", limits, b.replies)
		}
		if all, own := w.x.Count("k"); all != 1 || own != 1 {
			t.Errorf("%d waiters, %d of them fair", all, own)
		}
	}
}

func TestARefusedSubscriptionIsTheReply(t *testing.T) {
	w := newWorld(t)
	a := w.client(1)
	a.sends("LOCK k")
	a.answered(busy(time.Second), nil)
	w.x.Refused(w.wanted[0], "NOPERM no channel")
	w.work()
	a.got("-NOPERM no channel")
}
