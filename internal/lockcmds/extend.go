package lockcmds

import (
	"errors"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// startExtend executes EXTENDLOCK. The watchdog goes on with the new length. Requires the session lock.
func (e *Engine) startExtend(s contract.Caller, cmd grammar.Command) {
	x := &extension{e: &e.keeper, named: cmd.Fence}
	var refusal []byte
	unknown, atOnce := false, false
	e.step(func(t *table.Table) {
		session, k := e.beginLocked(&s, &cmd)
		switch m := e.meantLocked(session, k, &cmd); {
		case m == meansNothing:
			refusal = nameFenceReply()
		case m == meansLost, m == meansOwn && t.KnowsLoss(&session.Session, k, cmd.Fence):
			refusal = lostLeaseReply()
		case m == meansUnknown:
			unknown = true
		case m == meansPrivate, m == meansNamed:
			k = t.HoldByFence(cmd.Key, cmd.Fence).Key
		}
		if refusal != nil || unknown {
			return
		}
		x.session, x.key = session, k
		x.call = script.Extend{Key: cmd.Key, Part: session.PartIn(k), Lease: cmd.Lease}
		if x.h = t.Meant(&session.Session, k, cmd.Fence); x.h != nil && cmd.Fence != 0 && x.h.Fence != cmd.Fence {
			x.h = nil // another grant is meant, which Redis may have
		}
		if x.h != nil && (session.Owns(k.Owner) || !k.Kind.Reenters()) {
			x.call.Fence = x.h.Fence
		}
		if x.h != nil {
			if o := x.h.PartOf(&session.Session); o != nil {
				x.call.By = o.Acquire
			}
		}
		if cmd.Fence != 0 {
			x.call.Fence = cmd.Fence
		}
		send, unsent := func() { x.send(s.Session) }, func() { x.Answered(callOutcome{Err: contract.ErrUnsent}) }
		atOnce = x.h == nil || e.pauseLocked(s.Session, x.h, cmd.Lease, send, unsent)
	})
	switch {
	case unknown && e.mayHaveLost(&s, &cmd):
		s.Reply(lostLeaseReply())
	case unknown: // the watchdog of the grant is another proxy's
		s.Reply(notHereReply())
	case refusal != nil:
		s.Reply(refusal)
	case atOnce:
		x.send(s.Session)
	}
}

// extension is one EXTENDLOCK in progress.
type extension struct {
	e       *keeper
	session *clientSession
	key     table.Key
	h       *table.Hold // nil: no session of this proxy holds the lock for that owner
	named   int64       // the fence that the client has named; 0: none
	call    script.Extend
	q       callRequest
}

// script is the extension as it is sent.
func (x *extension) script() script.Call { return kindOf(x.key).Extend(x.call) }

// send sends the extension. Requires the session lock.
func (x *extension) send(s contract.Session) {
	x.q = callRequest{Session: s, For: x}
	x.e.calls.Send(x.script(), &x.q)
}

// Postponed implements lockCommand. When the lease that goes on has ended, there is nothing to extend.
func (x *extension) Postponed() (script.Call, time.Duration) {
	return x.script(), max(postponedLimit, x.e.lasts(x.h))
}

// Answered turns the answer of an extension into the reply. Requires the session lock, or that the session has ended.
func (x *extension) Answered(o callOutcome) []byte {
	a, err := decoded(o.Reply, o.Err, script.DecodeExtended)
	if x.h == nil && hasOtherType(x.key, err) {
		x.key.Kind = limit{}
		x.e.calls.Resend(&x.q, x.script(), postponedLimit)
		return nil
	}
	var overwritten error // the answer to a session that has lost nothing, or knows it
	if x.h != nil && isOverwritten(err) {
		overwritten, a, err = err, script.Extended{}, nil
	}
	said := table.NotHolder
	if a.Held {
		said = table.Held
	}
	answer := table.HoldAnswer{Status: statusOf(said, err), Fence: a.Fence, Holds: a.Holds, SentAt: o.SentAt}
	var reply table.Reply
	x.e.step(func(t *table.Table) {
		if answer.Status == table.InDoubt {
			x.settleLocked()
		}
		reply = t.Extended(&x.session.Session, x.key, x.h, x.call.Lease, answer)
	})
	if reply == table.NotHeld && overwritten != nil {
		return failureReply(overwritten)
	}
	return replyOf(reply, err, x.call.Session != "", x.named)
}

// settleLocked leaves the owner's only session the lease of which its client was told, though the extension may have
// made it longer. Requires keeper.mu.
func (x *extension) settleLocked() {
	h := x.h
	if h == nil || !x.session.Owns(x.key.Owner) || !x.e.table.Knows(h) {
		return
	}
	d := x.e.rollback(h, table.Part{Session: &x.session.Session})
	d.Until, d.Limit, d.Late = h.Lease.Deadline(), x.e.opts.Lease, true
	x.e.calls.RollBack(d)
}

// statusOf is what the outcome of a release or an extension means to the table: the answer, or an error in its place.
func statusOf(said table.Status, err error) table.Status {
	switch {
	case err == nil:
		return said
	case errors.Is(err, contract.ErrInDoubt):
		return table.InDoubt
	}
	return table.Failed
}

// replyOf is the reply to a release or an extension. named and fence: what the command names.
func replyOf(r table.Reply, err error, named bool, fence int64) []byte {
	switch r {
	case table.Failure:
		return failureReply(err)
	case table.Yes:
		return redcon.AppendInt(nil, 1)
	case table.Left:
		return redcon.AppendInt(nil, 0)
	case table.LostLease:
		return lostLeaseReply()
	default:
		return notHeldReply(named, fence)
	}
}
