package lockcmds

import (
	"cmp"
	"errors"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/watchdog"
)

// release is one UNLOCK in progress.
type release struct {
	e     *Engine
	c     *client
	cmd   grammar.Command
	call  script.Release
	h     *hold   // nil: no session of this proxy holds the lock for that owner
	spent bool    // the session had a hold, and has one fewer now
	plain *waiter // the first of those here, may get the lock in the same step; nil: there is none, or it may not
	fair  *waiter // the same of the fair ones
	q     *calls.Request
}

func (r *release) key() holdKey { return holdKey{r.cmd.Key, r.call.Owner} }

func (e *Engine) startRelease(s contract.Caller, cmd grammar.Command) {
	r := &release{e: e, cmd: cmd}
	e.mu.Lock()
	r.c = e.clientLocked(s)
	owner := cmp.Or(cmd.Owner, r.c.owner)
	k := holdKey{cmd.Key, owner}
	if e.knowsLossLocked(r.c, k) {
		e.mu.Unlock()
		s.Reply(replies.LostLease())
		return
	}
	r.call = script.Release{Key: cmd.Key, Part: e.partOf(r.c, owner)}
	r.call.Fence = cmd.Fence
	r.c.releasing++
	if r.h = e.holds[k]; r.h != nil {
		r.spendLocked()
		// A renewal that is on its way, perhaps on a sick connection, is not waited for: behind the release Redis refuses it by owner
		// and fence, and what it says of a hold that is being released is no loss.
		r.h.lease.Pause(nil)
		if !r.h.fixed { // a fixed lease, or one that is not ours to judge, is left to run out as it was
			r.call.Lease = r.h.ttl
		}
		r.h.releasing++
		r.plain, r.fair = e.nextLocked(r.h)
	}
	e.mu.Unlock()
	r.send(s.Session)
}

// spendLocked takes one hold off the session, before the release is sent. If the session has none, the release counts for another one of
// the owner, if possible for one at this proxy.
func (r *release) spendLocked() {
	if r.cmd.Fence != 0 && r.cmd.Fence != r.h.fence {
		return
	}
	r.call.Fence = r.h.fence
	for i := range r.h.holders {
		switch o := &r.h.holders[i]; {
		case o.holds == 0:
		case o.c == r.c:
			o.holds--
			r.call.Holds, r.spent = o.holds, true
			return
		default:
			r.call.From = o.c.owner
		}
	}
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
	if h.count != 1 || e.waits.set.Find(h.key) == nil {
		return nil, nil
	}
	next, ok := h.chain.Next(e.clock.Now())
	if !ok {
		return nil, nil // its message gives all waiters the same chance
	}
	e.waits.stepLocked(func(q *queue.Set) {
		shared, own := q.Offer(h.key, h.owner)
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
	if r.h != nil && calls.IsOverwritten(err) {
		a, err = script.Released{Status: script.NotHolder}, nil
	}
	r.e.damage.Note(r.cmd.Key, a.Damage)
	if !o.Repeated {
		r.handed(a, err)
	}
	var told *loss
	r.e.mu.Lock()
	h := r.h
	r.c.releasing--
	if h != nil {
		h.releasing--
	}
	lost := h != nil && h.lost
	if h != nil && r.e.holds[h.holdKey] != h {
		h = nil // lost or dropped meanwhile
	}
	if r.spent && (err != nil && !errors.Is(err, contract.ErrInDoubt) || err == nil && a.Status == script.OtherGrant) {
		r.refundLocked()
	}
	var out []byte
	switch {
	case err != nil:
		if h != nil {
			if errors.Is(err, contract.ErrInDoubt) {
				h.doubts++
			}
			h.lease.Continue()
		}
		out = replies.Failure(err)
		if h == nil && lost && !errors.Is(err, contract.ErrInDoubt) {
			out = replies.LostLease() // nothing was released, and the loss was not told because this release was on its way
		}
	case a.Status == script.Freed || a.Status == script.HandedOver:
		if h != nil && h.fence <= a.Fence {
			r.e.dropLocked(h)
		} else if h != nil {
			h.lease.Continue()
		}
		r.c.lost.Forget(r.cmd.Key, r.call.Owner)
		out = redcon.AppendInt(nil, 1)
	case a.Status == script.StillHeld:
		out = redcon.AppendInt(nil, 0)
		switch {
		case h != nil && h.fence == a.Fence && h.counted(a.Holds, r.q.SentAt) && !h.fixed: // the first copy may have set the lease
			if !h.lease.Resume(r.q.SentAt, h.entry()) {
				h.lease = r.e.watchdog.Track(h.entry(), r.q.SentAt)
			}
		case h != nil:
			h.lease.Continue()
		case lost && r.h.fence == a.Fence && r.h.releasing < a.Holds: // Redis judges later than our clock
			out = replies.LostLease()
		}
		r.c.lost.Forget(r.cmd.Key, r.call.Owner)
	case a.Status == script.OtherGrant && r.call.Session != "" && r.cmd.Fence == 0 && (r.call.Fence < a.Fence || a.Fence == 0):
		// Another session of the owner has released the grant, and one, or Redisson, has acquired the lock again: this UNLOCK is for
		// the new grant.
		if h != nil {
			r.e.dropLocked(h)
		}
		r.releaseNewerLocked(a.Fence)
	case o.Repeated:
		// An earlier copy has released the grant, or it was lost before: only the end of it is certain.
		if h != nil && (a.Status == script.NotHolder || h.fence < a.Fence) {
			r.e.dropLocked(h)
		} else if h != nil {
			h.lease.Continue()
		}
		out = replies.Failure(contract.ErrInDoubt)
	default:
		// Not the holder, or not by the grant that was named.
		mine := h != nil && (a.Status == script.NotHolder || h.fence < a.Fence)
		if mine && !h.givenUp() {
			told = r.e.loseLocked(h, watchdog.ReasonGone, r.c)
			out = replies.LostLease()
		} else if mine {
			r.e.dropLocked(h)
			out = replies.NotHeld()
		} else {
			if h != nil {
				h.lease.Continue()
			}
			out = r.e.tellLostLocked(r.c, r.key(), lost, replies.NotHeld())
		}
	}
	ended := r.c.ended && err != nil && r.spent
	r.e.mu.Unlock()
	r.e.tell(told)
	if ended { // the session's end has left this hold to the release
		part := r.call.Part
		part.Request = r.e.nextRequest()
		r.e.calls.RollBack(calls.Rollback{Drop: script.Drop{Key: r.cmd.Key, Part: part}, Limit: r.e.opts.Lease})
	}
	return out
}

// refundLocked is for a release that did not happen.
func (r *release) refundLocked() {
	if r.e.holds[r.key()] != r.h {
		return
	}
	if o := r.h.holderLocked(r.c); o != nil {
		o.holds++
	}
}

// releaseNewerLocked sends a release once more, for a later grant of the owner than this proxy knew. The session has no hold of it.
func (r *release) releaseNewerLocked(fence int64) {
	r.c.releasing++
	next := &release{e: r.e, c: r.c, cmd: r.cmd, q: r.q, call: script.Release{Key: r.cmd.Key, Part: r.e.partOf(r.c, r.call.Owner)}}
	next.call.Fence = fence
	call := next.call.Call()
	r.q.Again, r.q.Once, r.q.Done = call, fence == 0, next.released
	r.e.calls.Repeat(r.q)
}

// knowsLossLocked reports that the session has lost this lock, and forgets it: the answer is to be -LOSTLEASE, and
// nothing may be sent. Redis may have the key for an instant more, or for the same owner by another session, and who
// was told of the loss must not act on it unawares.
func (e *Engine) knowsLossLocked(c *client, k holdKey) bool {
	return e.holds[k] == nil && c.lost.Forget(k.key, k.owner)
}

// tellLostLocked replaces the reply if the lock was lost while the command was on its way, or the session has lost it before and
// was not told by a reply yet.
func (e *Engine) tellLostLocked(c *client, k holdKey, lost bool, reply []byte) []byte {
	if c.lost.Forget(k.key, k.owner) || lost || c.lost.Vague() {
		return replies.LostLease()
	}
	return reply
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
