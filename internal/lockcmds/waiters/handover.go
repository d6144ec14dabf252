package waiters

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// Offer is the first waiters of a lock at the release of its last hold. One of them gets the lock in the same step, if the script finds
// that it is its turn. The zero value has no waiters.
type Offer struct {
	x     *Waiters
	plain *waiter // the first of the plain waiters; nil: none is here, or it may not have the lock
	fair  *waiter // the same of the fair ones
}

// Offer takes the waiters to which the holder of that name may hand the lock over. last is the chain of the holder's own grant. The caller
// calls Answered, if the offer is not empty. Requires no locks.
func (x *Waiters) Offer(lock, holder string, last turns.Chain) Offer {
	o := Offer{x: x}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.set.Find(lock) == nil {
		return o
	}
	next, ok := last.Next(x.Calls.Clock.Now())
	if !ok {
		return o // the message of the release gives all waiters the same chance
	}
	x.stepLocked(func(q *queue.Set) {
		shared, own := q.Offer(lock, holder)
		if shared != nil {
			o.plain = waiterOf(shared)
			o.plain.chain = next
		}
		if own != nil {
			o.fair = waiterOf(own)
			o.fair.chain = next
		}
	})
	return o
}

// Empty reports whether the release hands the lock over to no waiter.
func (o *Offer) Empty() bool { return o.plain == nil && o.fair == nil }

// Call is the script of the release that grants the lock to one of the waiters.
func (o *Offer) Call(r script.Release) script.Call {
	acquire := func(w *waiter) *script.Acquire {
		if w == nil {
			return nil
		}
		a := w.acquire()
		return &a
	}
	h := script.HandOver{Release: r, Wait: o.x.FairWait, Crowd: o.x.place, Plain: acquire(o.plain), Fair: acquire(o.fair)}
	if o.plain != nil {
		_, h.Stays, _ = o.plain.First()
	}
	return h.Call()
}

// Answered settles the waiters with the outcome of the release, which the session s has sent at the moment sentAt. It is called once, at
// once if the outcome is in doubt. The client that gets the lock is told when s is unlocked. Requires the session lock of s.
func (o *Offer) Answered(s contract.Session, a script.Released, sentAt time.Time, err error) {
	if o.Empty() {
		return
	}
	if errors.Is(err, contract.ErrInDoubt) {
		for _, w := range []*waiter{o.plain, o.fair} {
			if w != nil {
				w.claim.Doubt(w.lease, sentAt)
			}
		}
	}
	deliver := o.settle(a, sentAt, err)
	if len(deliver) > 0 {
		o.x.Calls.Guard.AfterUnlock(s, func() {
			for _, f := range deliver {
				f()
			}
		})
	}
}

// settle returns the functions that tell a client of the grant. They require no locks.
func (o *Offer) settle(a script.Released, sentAt time.Time, err error) (deliver []func()) {
	granted, missed := script.Acquired{}, script.Acquired{PTTL: script.NoTTL}
	switch {
	case err != nil && !errors.Is(err, contract.ErrInDoubt):
		err = contract.ErrUnsent // the release was refused: nothing happened to the waiters
	case err == nil && (a.Status == script.Freed || a.Status == script.HandedOver):
		granted = script.Acquired{Granted: true, Fence: a.Granted, Holds: 1, Mine: 1, Placed: true, Place: a.Place}
		missed.Placed, missed.Place = true, a.Place
	}
	o.x.mu.Lock()
	defer o.x.mu.Unlock()
	if a.To != script.ToNobody && o.x.Events.HandedOver != nil {
		o.x.Events.HandedOver(o.x.Calls.Clock.Now().Sub(sentAt))
	}
	for i, w := range []*waiter{script.ToPlain: o.plain, script.ToFair: o.fair} {
		if w == nil {
			continue
		}
		outcome, answer := granted, answerOf(w, granted, err)
		if a.To != int64(i) {
			// If the lock was freed, its message wakes the waiter along with the others. If the lock was handed to another waiter, this
			// one's turn will come. Else the next attempt tells how things stand.
			outcome, answer = missed, answerOf(w, missed, err)
			answer.Again = err == nil && !missed.Placed
		}
		if f := w.answeredLocked(outcome, sentAt, answer); f != nil {
			deliver = append(deliver, f)
		}
	}
	return deliver
}
