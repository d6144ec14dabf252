package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// attempt is one script call for a waiter, as a job.
func (w *acquire) attempt() {
	if f := w.e.opts.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := w.ask()
	answer := answerOf(a, w.Lease, err)
	w.e.step(func(t *table.Table) { t.Answered(&w.Waiter, answer) })
	if answer.Status == table.Held {
		w.deliver(grantOf(a, sentAt))
	}
}

// ask asks for the lock on the engine's own connection.
func (w *acquire) ask() (a script.Acquired, sentAt time.Time, err error) {
	sentAt = w.e.opts.Clock.Now()
	a, err = runFor(w.e.life, w.e.client, w.question(), script.DecodeAcquired)
	if errors.Is(err, contract.ErrInDoubt) {
		w.e.step(func(t *table.Table) { t.Doubt(&w.Waiter, w.Lease, sentAt) })
	}
	if err == nil && !a.Granted && a.PTTL == script.NoTTL {
		a.PTTL = w.bound()
	}
	w.e.noteDamage(w.Lock, a.Damage)
	return a, sentAt, err
}

// bound gives a lock of ours a TTL that has none: a client has removed it, and without one the lock would outlive its
// holder. It returns the rest of the holder's lease.
func (w *acquire) bound() time.Duration {
	b := script.Bound{Key: w.Lock, Lease: w.e.opts.Lease}
	if done, err := runFor(w.e.life, w.e.client, b.Call(), script.DecodeDone); err != nil || !done {
		return script.NoTTL
	}
	return b.Lease
}

// deliver tells the client of a grant. If the client has gone, the grant is rolled back at once.
func (w *acquire) deliver(g grant) {
	ok := w.e.failstop.Do(w.s.Conn, func() {
		if reply := w.granted(g); reply != nil {
			w.s.Conn.Reply(reply)
		}
	})
	if !ok {
		w.drop(g, waitHungUp, nil)
	}
}

// asking is what the scripts of an attempt must know of the acquire.
func (w *acquire) asking() asking {
	return asking{Acquire: w.call(), FairWait: w.e.opts.fairWait, Crowd: w.e.crowd}
}

func (w *acquire) call() script.Acquire {
	return script.Acquire{Key: w.Lock, Part: w.Part(), Lease: w.Lease, Limit: w.Limit}
}

// question is the script of the next attempt.
func (w *acquire) question() script.Call {
	if w.DeepensOnly() {
		return script.Deepen{Acquire: w.call()}.Call()
	}
	return kindOf(w.Key).Ask(w.asking(), &w.Waiter)
}

// mayWait reports whether the client has time left to wait.
func (w *acquire) mayWait() bool { return w.MayWait(w.e.opts.Clock.Now().Sub(w.began)) }

// askAgain has an acquire ask again that has come to nothing: as a waiter, or once if it may not wait any longer. a is
// what the last attempt has told. Requires no locks.
func (w *acquire) askAgain(a script.Acquired) {
	if !w.mayWait() {
		w.e.calls.Resend(&w.sent, w.question(), longestPause)
		return
	}
	ok := w.e.failstop.Do(w.s.Conn, func() {
		w.mark = table.Mark{}
		if reply := w.await(a); reply != nil {
			w.s.Conn.Reply(reply)
		}
	})
	if !ok {
		w.withdraw(table.Gone, nil)
	}
}
