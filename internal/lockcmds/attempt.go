package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// attempt is one script call for a waiter, as a job.
func (w *waiter) attempt() {
	if f := w.e.opts.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := w.call()
	answer := answerOf(a, w.Lease, err)
	w.e.step(func(t *table.Table) { t.Answered(&w.Waiter, answer) })
	if answer.Status == table.Held {
		w.deliver(grantOf(a, sentAt))
	}
}

// call asks for the lock on the engine's own connection.
func (w *waiter) call() (a script.Acquired, sentAt time.Time, err error) {
	c := w.e.calls
	sentAt = c.Clock.Now()
	q := w.question()
	a, err = runFor(c.Life, c.Client, q.Call, q.Decode)
	if errors.Is(err, contract.ErrInDoubt) {
		w.claim.Doubt(w.Lease, sentAt)
	}
	w.e.damage.Note(w.lock(), a.Damage)
	return a, sentAt, err
}

// deliver tells the client of a grant. If the client has gone, the grant is rolled back at once.
func (w *waiter) deliver(g grant) {
	ok := w.e.calls.Guard.Do(w.conn(), func() {
		if reply := w.granted(g); reply != nil {
			w.conn().Reply(reply)
		}
	})
	if !ok {
		w.hungUp(g.fence)
	}
}

// asking is what the scripts of an attempt must know of the acquire.
func (w *waiter) asking() attempt {
	return attempt{Acquire: w.acquire(), Waits: w.Wait != 0, FairWait: w.e.opts.fairWait, Crowd: w.e.place}
}

func (w *waiter) acquire() script.Acquire {
	return script.Acquire{Key: w.lock(), Part: w.claim.Part(), Lease: w.Lease}
}

// question is the script of the waiter's next attempt.
func (w *waiter) question() question { return w.kind().Question(w.asking(), &w.Waiter) }

// mayWait reports whether the client has time left to wait.
func (w *waiter) mayWait() bool { return w.MayWait(w.e.calls.Clock.Now().Sub(w.began)) }

// goOn has an acquire ask again whose first attempt has come to nothing: as a waiter, or once if it may not wait any
// longer. Requires no locks.
func (w *waiter) goOn() {
	if !w.mayWait() {
		w.e.calls.Background(jobs.Attempt.For(w.lock()), w.tryOnce)
		return
	}
	ok := w.e.calls.Guard.Do(w.conn(), func() {
		if w.goHome() {
			return
		}
		w.mark = table.Mark{}
		if reply := w.await(script.Acquired{}); reply != nil {
			w.conn().Reply(reply)
		}
	})
	if !ok {
		w.withdraw(table.Gone, nil)
	}
}

// tryOnce is the last attempt of an acquire that may not wait any longer. If its answer is lost, it is sent again like
// a call of a session.
func (w *waiter) tryOnce() {
	if w.e.hasEnded(w.session()) {
		w.withdraw(table.Gone, nil)
		return
	}
	a, sentAt, err := w.call()
	switch {
	case errors.Is(err, contract.ErrInDoubt):
		w.e.calls.Repeat(&callRequest{Session: w.conn(), For: lastAttempt{w}}, w.question().Call)
	case err != nil:
		w.withdraw(table.Error, err)
	case a.Granted:
		w.deliver(grantOf(a, sentAt))
	default:
		w.claim.Overtaken()
		w.withdraw(table.Null, nil)
	}
}

// lastAttempt is a waiter whose last attempt is sent again. It may have a place in the queue from an earlier attempt,
// so it is withdrawn if it gets no grant.
type lastAttempt struct{ *waiter }

// Postponed implements asker.
func (lastAttempt) Postponed() (script.Call, time.Duration) { return script.Call{}, 0 }

// Answered implements asker.
func (l lastAttempt) Answered(o callOutcome) []byte {
	w := l.waiter
	a, err := decoded(o.Reply, o.Err, script.DecodeAcquired)
	w.e.damage.Note(w.lock(), a.Damage)
	switch {
	case err == nil && a.Granted:
		return w.granted(grantOf(a, o.SentAt))
	case err == nil:
		w.claim.Overtaken()
		w.withdraw(table.Null, nil)
		return nil
	case errors.Is(err, contract.ErrInDoubt):
		w.rollBack(0, nil)
	}
	w.withdraw(table.Error, err)
	return nil
}

// offer is the first waiters of a lock at the release of its last hold. One of them gets the lock in the same step, if
// the script finds that it is its turn. The zero value has no waiters.
type offer struct {
	e     *Engine
	plain *waiter // the first of the plain waiters; nil: none is here, or it may not have the lock
	fair  *waiter // the same of the fair ones
}

// offerLocked takes the waiters to which the holder of that name may hand the lock over. last is the streak of the
// holder's own grant. If the offer is not empty, answeredLocked is called once, at once if the outcome is in doubt.
// Requires Engine.mu.
func (e *Engine) offerLocked(lock, holder string, last table.Streak) offer {
	o := offer{e: e}
	if e.table.Queue(lock) == nil {
		return o
	}
	next, ok := last.Next(e.calls.Clock.Now())
	if !ok {
		return o // the message of the release gives all waiters the same chance
	}
	shared, own := e.table.Offer(lock, holder)
	if shared != nil {
		o.plain = waiterOf(shared)
		o.plain.streak = next
	}
	if own != nil {
		o.fair = waiterOf(own)
		o.fair.streak = next
	}
	return o
}

// Empty reports whether the release hands the lock over to no waiter.
func (o *offer) Empty() bool { return o.plain == nil && o.fair == nil }

// Call is the script of the release that grants the lock to one of the waiters.
func (o *offer) Call(r script.Release) script.Call {
	acquire := func(w *waiter) *script.Acquire {
		if w == nil {
			return nil
		}
		a := w.acquire()
		return &a
	}
	h := script.HandOver{Release: r, Wait: o.e.opts.fairWait, Crowd: o.e.place, Plain: acquire(o.plain), Fair: acquire(o.fair)}
	if o.plain != nil {
		_, h.Stays, _ = o.plain.First()
	}
	return h.Call()
}

// answeredLocked settles the waiters with the outcome of the release, which was sent at that moment. It returns the
// waiter that has got the lock, for deliver; nil: none has. The caller carries out the effects. Requires Engine.mu.
func (o *offer) answeredLocked(a script.Released, sentAt time.Time, err error) (to *waiter, g grant) {
	if o.Empty() {
		return nil, g
	}
	t := o.e.table
	if errors.Is(err, contract.ErrInDoubt) {
		for _, w := range []*waiter{o.plain, o.fair} {
			if w != nil {
				w.claim.doubtLocked(w.Lease, sentAt)
			}
		}
	}
	granted, missed := script.Acquired{}, script.Acquired{PTTL: script.NoTTL}
	switch {
	case err != nil && !errors.Is(err, contract.ErrInDoubt):
		err = contract.ErrUnsent // the release was refused: nothing happened to the waiters
	case err == nil && (a.Status == script.Freed || a.Status == script.HandedOver):
		granted = script.Acquired{Granted: true, Fence: a.Granted, Holds: 1, Placed: true, Place: a.Place}
		missed.Placed, missed.Place = true, a.Place
	}
	if a.To != script.ToNobody && o.e.opts.Events.HandedOver != nil {
		o.e.opts.Events.HandedOver(o.e.calls.Clock.Now().Sub(sentAt))
	}
	for i, w := range []*waiter{script.ToPlain: o.plain, script.ToFair: o.fair} {
		if w == nil {
			continue
		}
		outcome, answer := granted, answerOf(granted, w.Lease, err)
		if a.To != int64(i) && a.To != script.ToNamed {
			// If the lock was freed, its message wakes the waiter along with the others. If the lock was handed to
			// another waiter, this one's turn will come. Else the next attempt tells how things stand.
			outcome, answer = missed, answerOf(missed, w.Lease, err)
			answer.Again = err == nil && !missed.Placed
		}
		t.Answered(&w.Waiter, answer)
		if answer.Status == table.Held {
			to, g = w, grantOf(outcome, sentAt)
		}
	}
	return to, g
}

// deliver tells the client of a waiter that has got the lock when the session s is unlocked; nil: none has. Requires
// the session lock of s.
func (o *offer) deliver(s contract.Session, to *waiter, g grant) {
	if to != nil {
		o.e.guard.AfterUnlock(s, func() { to.deliver(g) })
	}
}
