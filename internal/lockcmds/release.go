package lockcmds

import (
	"errors"

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

	e     *Engine
	c     *client
	call  script.Release
	plain *waiter // the first of those here, may get the lock in the same step; nil: there is none, or it may not
	fair  *waiter // the same of the fair ones
	q     *calls.Request
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
	r.call = script.Release{Key: cmd.Key, Part: e.partOf(&c.Session, k.Owner), From: r.From}
	r.call.Fence, r.call.Holds = r.Fence, r.Holds
	if h := holdOf(r.Hold); h != nil {
		if !h.Fixed { // a fixed lease, or one that is not ours to judge, is left to run out as it was
			r.call.Lease = h.TTL
		}
		r.plain, r.fair = e.nextLocked(h)
	}
	e.mu.Unlock()
	r.send(s.Session)
}

// send sends the release, or the hand-over if a waiter here can have the lock next. Requires the session lock.
func (r *release) send(s contract.Session) {
	call := r.call.Call()
	q := &calls.Request{Session: s, Call: call, Pipelined: true, Done: r.released}
	r.q = q
	if r.plain != nil || r.fair != nil {
		q.Call = r.handOver().Call()
		q.Doubted = func() { r.handed(script.Released{}, contract.ErrInDoubt) }
	}
	if r.call.Session == "" || r.call.Fence != 0 { // else a copy could find a later grant of the owner
		q.Again = call
	}
	r.e.calls.Send(q)
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
	h := script.HandOver{Release: r.call, Wait: r.e.opts.fairWait, Crowd: r.e.waits.place, Plain: who(r.plain), Fair: who(r.fair)}
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

// released turns the outcome of a release into the reply. Requires the session lock, or that the session has ended.
func (r *release) released(o calls.Outcome) []byte {
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
		r.againLocked(a.Fence)
	}
	ended := r.c.ended && err != nil && r.Spent
	r.e.mu.Unlock()
	r.e.tell(told)
	if ended { // the session's end has left this hold to the release
		part := r.call.Part
		part.Request = r.e.nextRequest()
		r.e.calls.RollBack(calls.Rollback{Drop: script.Drop{Key: r.Key.Lock, Part: part}, Limit: r.e.opts.Lease})
	}
	return replyOf(reply, err, r.Key.Owner != r.c.Name, r.Named)
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

// againLocked sends a release once more, for a later grant of the owner than this proxy knew. The session has no hold of it.
func (r *release) againLocked(fence int64) {
	next := &release{e: r.e, c: r.c, q: r.q, Release: r.e.ledger.Again(&r.Release, fence)}
	next.call = script.Release{Key: r.Key.Lock, Part: r.e.partOf(&r.c.Session, r.Key.Owner)}
	next.call.Fence = fence
	call := next.call.Call()
	r.q.Again, r.q.Once, r.q.Done = call, fence == 0, next.released
	r.e.calls.Repeat(r.q)
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
