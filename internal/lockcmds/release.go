package lockcmds

import (
	"errors"
	"time"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
)

// release is one UNLOCK in progress.
type release struct {
	ledger.Release

	e       *Engine
	c       *client
	request int64         // number of the call
	lease   time.Duration // least lease that goes on if holds are left; 0: its TTL stays
	plain   *waiter       // the first of those here, may get the lock in the same step; nil: there is none, or it may not
	fair    *waiter       // the same of the fair ones
	q       calls.Request
}

// startRelease executes UNLOCK. Requires the session lock.
func (e *Engine) startRelease(s contract.Caller, cmd grammar.Command) {
	e.mu.Lock()
	c, k, lost := e.beginLocked(s, cmd)
	if lost {
		e.mu.Unlock()
		s.Reply(replies.LostLease())
		return
	}
	r := &release{e: e, c: c, Release: e.ledger.Release(&c.Session, k, cmd.Fence)}
	e.settleLocked()
	r.request = e.nextRequest()
	if h := holdOf(r.Hold); h != nil {
		if !h.Fixed { // a fixed lease, or one that is not ours to judge, is left to run out as it was
			r.lease = h.TTL
		}
		r.plain, r.fair = e.nextLocked(h)
	}
	e.mu.Unlock()
	r.send(s.Session)
}

// part is what the release writes about its session's part in the lock.
func (r *release) part() script.Part {
	p := script.Part{Owner: r.Key.Owner, Request: r.request, Fence: r.Fence, Holds: r.Holds}
	if r.named() {
		p.Session = r.c.Name
	}
	return p
}

// named reports whether the owner is not the session's own.
func (r *release) named() bool { return r.Key.Owner != r.c.Name }

// call is the release without a hand-over.
func (r *release) call() script.Release {
	return script.Release{Key: r.Key.Lock, Part: r.part(), Lease: r.lease, From: r.From}
}

// send sends the release, or the hand-over if a waiter here can have the lock next. Requires the session lock.
func (r *release) send(s contract.Session) {
	r.q = calls.Request{Session: s, Pipelined: true, For: r}
	if r.plain != nil || r.fair != nil {
		r.e.calls.Send(r.handOver().Call(), &r.q)
	} else {
		r.e.calls.Send(r.call().Call(), &r.q)
	}
}

// Again implements calls.Asker. The copy for a named owner names the grant, else it could find a later one.
func (r *release) Again() (script.Call, bool) {
	return r.call().Call(), !r.named() || r.Fence != 0
}

// Doubted implements calls.Asker. The copy is a plain release.
func (r *release) Doubted() {
	r.e.doubt(r.c)
	r.handed(script.Released{}, contract.ErrInDoubt)
}

// handOver is the call of a release that says who may have the lock next.
func (r *release) handOver() script.HandOver {
	who := func(w *waiter) *script.Acquire {
		if w == nil {
			return nil
		}
		a := w.acquire()
		return &a
	}
	h := script.HandOver{Release: r.call(), Wait: r.e.opts.fairWait, Crowd: r.e.waits.place, Plain: who(r.plain), Fair: who(r.fair)}
	if r.plain != nil {
		_, h.Stays, _ = r.plain.First()
	}
	return h
}

// nextLocked takes the waiters of which one gets the lock by a hand-over, if the script finds that it is its turn. It must be the
// last hold, or there is nothing to hand over.
func (e *Engine) nextLocked(h *hold) (plain, fair *waiter) {
	if h.Count != 1 || e.waits.set.Find(h.Lock) == nil {
		return nil, nil
	}
	next, ok := h.chain.Next(e.clock.Now())
	if !ok {
		return nil, nil // its message gives all waiters the same chance
	}
	e.waits.stepLocked(func(q *queue.Set) {
		shared, own := q.Offer(h.Lock, h.Owner)
		if shared != nil {
			plain = waiterOf(shared)
			plain.chain = next
		}
		if own != nil {
			fair = waiterOf(own)
			fair.chain = next
		}
	})
	return plain, fair
}

// Answered turns the outcome of a release into the reply. Requires the session lock, or that the session has ended.
func (r *release) Answered(o calls.Outcome) []byte {
	a, err := calls.Decoded(o.Reply, o.Err, script.DecodeReleased)
	if r.Hold != nil && calls.IsOverwritten(err) {
		a, err = script.Released{Status: script.NotHolder}, nil
	}
	r.e.damage.Note(r.Key.Lock, a.Damage)
	if !o.Repeated {
		r.handed(a, err)
	}
	r.e.mu.Lock()
	reply := r.e.ledger.Released(&r.Release, ledger.Answer{
		Status: statusOf(a, err), Fence: a.Fence, Holds: a.Holds, SentAt: r.q.SentAt, Repeated: o.Repeated,
	})
	told := r.e.settleLocked()
	if reply == ledger.Newer {
		r.anewLocked(a.Fence)
	}
	r.c.Doubted = r.c.Doubted || errors.Is(err, contract.ErrInDoubt)
	ended := r.c.ended && err != nil && r.Spent
	var field calls.Rollback
	spare := false
	if err == nil && a.Status == script.StillHeld {
		field, spare = r.fieldLocked(a.Fence)
	}
	r.e.mu.Unlock()
	r.e.tell(told)
	if spare {
		r.e.calls.RollBack(field)
	}
	if reply == ledger.Newer {
		return nil // r is the next release by now
	}
	if ended { // the session's end has left this hold to the release
		part := r.part()
		part.Request = r.e.nextRequest()
		r.e.calls.RollBack(calls.Rollback{Drop: script.Drop{Key: r.Key.Lock, Part: part}, Limit: r.e.opts.Lease})
	}
	return replyOf(reply, err, r.named(), r.Named)
}

// statusOf is what the answer to a release means to the ledger.
func statusOf(a script.Released, err error) ledger.Status {
	switch {
	case errors.Is(err, contract.ErrInDoubt):
		return ledger.InDoubt
	case err != nil:
		return ledger.Failed
	}
	switch a.Status {
	case script.Freed, script.HandedOver:
		return ledger.Freed
	case script.StillHeld:
		return ledger.Held
	case script.OtherGrant:
		return ledger.OtherGrant
	default:
		return ledger.NotHolder
	}
}

// anewLocked sends a release once more, for a later grant of the owner than this proxy knew. The session has no hold of it.
func (r *release) anewLocked(fence int64) {
	r.Release = r.e.ledger.Again(&r.Release, fence)
	r.request, r.lease, r.plain, r.fair = r.e.nextRequest(), 0, nil, nil
	r.q.Once = fence == 0
	r.e.calls.Repeat(&r.q, r.call().Call())
}

// handed settles the waiters of which one was to get the lock. Requires the session lock.
func (r *release) handed(a script.Released, err error) {
	if r.plain == nil && r.fair == nil {
		return
	}
	r.e.mu.Lock()
	after := r.handedLocked(a, err)
	r.e.mu.Unlock()
	if len(after) > 0 {
		r.e.guard.AfterUnlock(r.q.Session, func() {
			for _, f := range after {
				f()
			}
		})
	}
}

// handedLocked returns work that requires no locks.
func (r *release) handedLocked(a script.Released, err error) (after []func()) {
	granted, missed := script.Acquired{}, script.Acquired{PTTL: script.NoTTL}
	switch {
	case err != nil && !errors.Is(err, contract.ErrInDoubt):
		err = contract.ErrUnsent // the release was refused: nothing happened to the waiters
	case err == nil && (a.Status == script.Freed || a.Status == script.HandedOver):
		granted = script.Acquired{Granted: true, Fence: a.Granted, Holds: 1, Mine: 1, Placed: true, Place: a.Place}
		missed.Placed, missed.Place = true, a.Place
	}
	if a.To != script.ToNobody && r.e.opts.Events.HandedOver != nil {
		r.e.opts.Events.HandedOver()
	}
	for i, w := range []*waiter{script.ToPlain: r.plain, script.ToFair: r.fair} {
		if w == nil {
			continue
		}
		outcome, answer := granted, answerOf(w, granted, err)
		if a.To != int64(i) {
			// If the lock was freed, its message wakes the waiter along with the others; if it was handed to another, its turn will
			// come; else the next attempt tells how things stand.
			outcome, answer = missed, answerOf(w, missed, err)
			answer.Again = err == nil && !missed.Placed
		}
		if f := w.answeredLocked(outcome, r.q.SentAt, answer); f != nil {
			after = append(after, f)
		}
	}
	return after
}
