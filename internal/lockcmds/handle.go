package lockcmds

import (
	"context"
	"errors"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// The fence is the handle of a grant: a command that names a FENCE and no OWNER is for that grant, whichever connection
// has acquired it. If the grant is the connection's own, the command is an ordinary one.

// releaseGrant ends the grant that UNLOCK names by its fence, with all its holds. If the answer is lost, the engine
// ends it: that call finds that grant or none. Requires the session lock.
func (e *Engine) releaseGrant(s contract.Caller, cmd grammar.Command) {
	var h *table.Hold
	e.step(func(t *table.Table) { h = t.Ending(cmd.Key, cmd.Fence) })
	force := script.Force{Key: cmd.Key, Fence: cmd.Fence}
	if h != nil && h.Kind.Shares() { // a crowd of holders is not searched
		force.Owner = h.Owner
	}
	call := force.Call
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainCommand{Call: call, Reply: func(o callOutcome) []byte {
		ended, err := decoded(o.Reply, o.Err, script.DecodeForced)
		if errors.Is(err, contract.ErrInDoubt) {
			e.endGrant(cmd.Key, h, call())
			return contract.Unanswered
		}
		e.step(func(t *table.Table) { t.Ended(h, len(ended) > 0) })
		switch {
		case err != nil:
			return failureReply(err)
		case len(ended) == 0 && e.mayHaveLost(&s, &cmd):
			return lostLeaseReply()
		case len(ended) == 0:
			return notHeldReply(false, cmd.Fence)
		}
		e.grantEnded(cmd.Key, ended)
		return redcon.AppendInt(nil, 1)
	}}})
}

// grantEnded tells of a grant that was ended by its handle.
func (e *Engine) grantEnded(key string, ended []script.Forced) {
	for _, a := range ended { // after a failover two owners may have been granted the same fence
		a.Handle = true
		e.forced(key, a)
	}
}

// endGrant ends a grant by its handle for a client that gets no answer. h is its hold here, for table.Ended; nil: there
// is none.
func (e *Engine) endGrant(key string, h *table.Hold, call script.Call) {
	over := false
	e.calls.Retry(cleanup{
		What: "end a grant", Key: key, Limit: e.opts.Lease,
		Task: func(ctx context.Context) error {
			ended, err := runFor(ctx, e.client, call, script.DecodeForced)
			over = err == nil
			e.grantEnded(key, ended)
			return err
		},
		Done: func(bool) { e.step(func(t *table.Table) { t.Ended(h, over) }) },
	})
}

// meaning is what a release or an extension of a session is about.
type meaning uint8

const (
	meansOwn     meaning = iota // the session's own hold, or one that it has lost, or that of the OWNER that it names
	meansNothing                // one of several of the session's acquires, and it does not say which
	meansPrivate                // another session's hold, by its fence: no third one acquires for its owner
	meansNamed                  // a grant of a named owner, by its fence
	meansLost                   // a grant that was lost here, by its fence
	meansUnknown                // a grant that no session here has, by its fence
)

// meantLocked says what a release or an extension is about. own is what keyLocked says. Requires keeper.mu.
func (e *keeper) meantLocked(s *clientSession, own table.Key, cmd *grammar.Command) meaning {
	switch {
	case cmd.Owner != "":
		return meansOwn
	case cmd.Fence == 0:
		if s.Each {
			if _, ok := s.Own(cmd.Key); !ok {
				return meansNothing
			}
		}
		return meansOwn
	}
	h := e.table.Meant(&s.Session, own, cmd.Fence)
	if h != nil && h.Fence == cmd.Fence || s.LostFence(own) == cmd.Fence {
		return meansOwn
	}
	switch h := e.table.HoldByFence(cmd.Key, cmd.Fence); {
	case h == nil && e.table.WasLost(&s.Session, own, cmd.Fence):
		return meansLost
	case h == nil:
		return meansUnknown
	case h.Private():
		return meansPrivate
	default:
		return meansNamed
	}
}

// mayHaveLost reports whether a grant that is not found by its fence may be one that the session has lost. Of permits
// the fences are not remembered, so one is forgotten; of a session with very many losses, not all are. Requires the
// session lock.
func (e *Engine) mayHaveLost(s *contract.Caller, cmd *grammar.Command) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	session := e.sessions[s.ID]
	if session == nil { // it has ended while the answer was on its way
		return false
	}
	k := e.keyLocked(session, cmd)
	return k.Kind == limit{} && e.table.KnowsLoss(&session.Session, k, cmd.Fence) || session.Losses.Vague()
}
