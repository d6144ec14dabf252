package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// offer is the first waiters of a lock at the release of its last hold. One of them gets the lock in the same step, if
// the script finds that it is its turn. The zero value has no waiters.
type offer struct {
	e     *keeper
	plain *acquire // the first of the plain waiters; nil: none is here, or it may not have the lock
	fair  *acquire // the same of the fair ones
}

// offerLocked takes the waiters to which that holder may hand the lock over. last is the streak of the
// holder's own grant. If the offer is not empty, answeredLocked is called once.
// Requires keeper.mu.
func (e *keeper) offerLocked(from table.Key, last table.Streak) offer {
	o := offer{e: e}
	if e.table.Queue(from.Lock) == nil {
		return o
	}
	plain, fair := e.table.Offer(from, last, e.opts.Clock.Now())
	o.plain, o.fair = acquireOf(plain), acquireOf(fair)
	return o
}

// Empty reports whether the release hands the lock over to no waiter.
func (o *offer) Empty() bool { return o.plain == nil && o.fair == nil }

// With is a release that grants the lock to one of the waiters.
func (o *offer) With(r script.Release) script.HandOver {
	acquire := func(w *acquire) *script.Acquire {
		if w == nil {
			return nil
		}
		a := w.call()
		return &a
	}
	h := script.HandOver{
		Release: r, Wait: o.e.opts.fairWait, Crowd: o.e.crowd, Plain: acquire(o.plain), Fair: acquire(o.fair),
	}
	if o.plain != nil {
		_, h.Stays, _ = o.plain.First()
	}
	if o.fair != nil {
		h.FairPlace = o.fair.Place
	}
	return h
}

// answeredLocked settles the waiters with the outcome of the release, which was sent at that moment. It returns the
// waiter that has got the lock, for deliver; nil: none has. The caller carries out the effects. Requires keeper.mu.
func (o *offer) answeredLocked(a script.Released, sentAt time.Time, err error) (to *acquire, g grant) {
	if o.Empty() {
		return nil, g
	}
	t := o.e.table
	if errors.Is(err, contract.ErrInDoubt) {
		for _, w := range []*acquire{o.plain, o.fair} {
			if w != nil {
				t.Doubt(&w.Waiter, w.Lease, sentAt)
			}
		}
	}
	granted, missed := script.Acquired{}, script.Acquired{PTTL: script.NoTTL}
	switch {
	case err != nil && !errors.Is(err, contract.ErrInDoubt):
		err = contract.ErrUnsent // the release was refused: nothing happened to the waiters
	case err == nil && a.Status == script.Freed:
		granted = script.Acquired{Granted: true, Fence: a.Granted, Holds: 1, Placed: true, Place: a.Place, PTTL: a.PTTL}
		missed.Placed, missed.Place = true, a.Place
	}
	if a.To != script.ToNobody && o.e.opts.Events.HandedOver != nil {
		o.e.opts.Events.HandedOver(o.e.opts.Clock.Now().Sub(sentAt))
	}
	for i, w := range []*acquire{script.ToPlain: o.plain, script.ToFair: o.fair} {
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

// askAgain has the waiters ask that still wait. Requires no locks.
func (o *offer) askAgain() {
	o.e.step(func(t *table.Table) {
		for _, w := range []*acquire{o.plain, o.fair} {
			if w != nil {
				t.AskAgain(&w.Waiter)
			}
		}
	})
}

// deliver tells the client of a waiter that has got the lock when the session s is unlocked; nil: none has. Requires
// the session lock of s.
func (o *offer) deliver(s contract.Session, to *acquire, g grant) {
	if to != nil {
		o.e.failstop.AfterUnlock(s, func() { to.deliver(g) })
	}
}
