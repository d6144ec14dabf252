package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// release is one UNLOCK in progress.
type release struct {
	table.Release

	e       *keeper
	session *clientSession // that holds the lock; of a whole grant it need not be the one that releases
	whole   bool           // it ends the grant with all its holds
	next    offer          // of the waiters here, one of which may get the lock in the same step
	q       callRequest
}

// startRelease executes UNLOCK. Requires the session lock.
func (e *Engine) startRelease(s contract.Caller, cmd grammar.Command) {
	r := &release{e: &e.keeper}
	var refusal []byte
	grant := false // the whole grant, of which no session here is the only holder
	e.step(func(t *table.Table) {
		session, k := e.beginLocked(&s, &cmd)
		m := e.meantLocked(session, k, &cmd)
		switch {
		case m == meansNothing:
			refusal = nameFenceReply()
		case m == meansLost, m == meansOwn && t.KnowsLossOf(&session.Session, k, cmd.Fence):
			refusal = lostLeaseReply()
		case m == meansUnknown, m == meansNamed:
			grant = true
		case m == meansPrivate:
			h := t.HoldByFence(cmd.Key, cmd.Fence)
			session, k = h.Parts()[0].Session.Tag.(*clientSession), h.Key
			r.Release, r.whole = t.ReleaseAll(h), true
		default:
			r.Release = t.Release(&session.Session, k, cmd.Fence)
		}
		r.session = session
		h := r.Hold
		if h == nil {
			return
		}
		if !h.Fixed { // a fixed lease, or one that is not ours to judge, is left to run out as it was
			r.Lease = e.nextLease(h)
		}
		if h.Count == 1 || r.whole {
			r.next = e.offerLocked(k, h.Streak)
		}
	})
	switch {
	case refusal != nil:
		s.Reply(refusal)
	case grant:
		e.releaseGrant(s, cmd)
	default:
		r.send(s.Session)
	}
}

// part is what the release writes about its session's part in the lock.
func (r *release) part() script.Part {
	p := r.session.PartIn(r.Key)
	p.Fence, p.Holds = r.Fence, r.Holds
	return p
}

// named reports whether the owner is not the session's own.
func (r *release) named() bool { return !r.session.Owns(r.Key.Owner) }

// release is the release without a hand-over.
func (r *release) release() script.Release {
	return script.Release{Key: r.Key.Lock, Part: r.part(), Lease: r.Lease}
}

// alone is the same, as it is sent.
func (r *release) alone() script.Call { return kindOf(r.Key).Release(r.release()) }

// send sends the release, or the hand-over if a waiter here can have the lock next. Requires the session lock.
func (r *release) send(s contract.Session) {
	r.q = callRequest{Session: s, For: r}
	if r.next.Empty() {
		r.e.calls.Send(r.alone(), &r.q)
	} else {
		r.e.calls.Send(kindOf(r.Key).HandOver(r.next.With(r.release())), &r.q)
	}
}

// Postponed implements lockCommand. A waiter here is not kept for it.
func (r *release) Postponed() (script.Call, time.Duration) {
	r.e.step(func(*table.Table) { r.next.answeredLocked(script.Released{}, r.q.SentAt, contract.ErrUnsent) })
	r.next = offer{}
	return r.alone(), max(postponedLimit, r.e.lasts(r.Hold))
}

// Answered turns the outcome of a release into the reply. Requires the session lock, or that the session has ended.
func (r *release) Answered(o callOutcome) []byte {
	sent := r.release()
	a, err := decoded(o.Reply, o.Err, sent.Decode)
	if r.Hold == nil && hasOtherType(r.Key, err) {
		r.Key.Kind = limit{}
		r.e.calls.Resend(&r.q, r.alone(), postponedLimit)
		return nil
	}
	var overwritten error // the answer to a session that has lost nothing, or knows it
	if r.Hold != nil && isOverwritten(err) {
		overwritten, a, err = err, script.Released{Status: script.NotHolder}, nil
	}
	r.e.noteDamage(r.Key.Lock, a.Damage)
	var to *acquire
	var g grant
	var reply table.Reply
	var rest rollback
	var left bool
	lost := errors.Is(err, contract.ErrInDoubt)
	r.e.step(func(t *table.Table) {
		if a.Waited || lost {
			r.e.lookLaterLocked(r.Key.Lock)
		}
		to, g = r.next.answeredLocked(a, o.SentAt, err)
		if lost || err != nil && r.session.ended { // whose end has left this hold to the release
			r.settleLocked()
		}
		reply = t.Released(&r.Release, table.HoldAnswer{
			Status: statusOf(a.Status, err), Fence: a.Fence, Holds: a.Holds, SentAt: o.SentAt,
		})
		if r.session.ended && r.Hold != nil {
			rest, left = r.e.restLocked(r.session, r.Hold)
		}
	})
	r.next.deliver(r.q.Session, to, g)
	if left {
		r.e.calls.RollBack(rest)
	}
	if lost {
		return contract.Unanswered
	}
	if reply == table.Yes && r.named() && a.Fence > 0 && (r.Hold == nil || r.Hold.Fence != a.Fence) {
		// Sessions elsewhere have acquired it.
		r.e.forced(r.Key.Lock, script.Forced{Owner: r.Key.Owner, Fence: a.Fence, Handle: true})
	}
	if reply == table.NotHeld && overwritten != nil {
		return failureReply(overwritten)
	}
	if reply == table.NotHeld && !r.named() && r.Named == 0 {
		r.e.opts.Reentries.NoteNotHeld(r.session.Client, r.session.Library, r.Key.Lock)
	}
	return replyOf(reply, err, r.named(), r.Named)
}

// settleLocked does what the release may have left undone, as far as that can be done twice: it ends the grant of the
// owner's only session, or leaves it the lease of which its client was told, or ends a permit. Behind that the waiters
// ask that were offered the lock: the hand-over cannot happen any more. Requires keeper.mu.
func (r *release) settleLocked() {
	if r.named() && r.Key.Kind.Reenters() || r.Fence == 0 {
		if !r.next.Empty() {
			r.e.calls.After(lateCopy, jobs.Urgent, r.next.askAgain)
		}
		return
	}
	d := rollback{
		Drop: script.Drop{Key: r.Key.Lock, Part: r.part()}, Kind: kindOf(r.Key), Limit: r.e.opts.Lease, Late: true,
	}
	if h := r.Hold; h != nil && r.Holds > 0 {
		d.Until = h.Lease.Deadline()
	}
	if !r.next.Empty() {
		d.Done = r.next.askAgain
	}
	r.e.calls.RollBack(d)
}
