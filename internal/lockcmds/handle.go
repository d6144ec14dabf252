package lockcmds

import (
	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// The fence is the handle of a grant: a command that names a FENCE and no OWNER is for that grant, whichever connection
// has acquired it. If the grant is the connection's own, the command is an ordinary one.

// releaseGrant ends the grant that UNLOCK names by its fence, with all its holds. A copy of the call finds that grant
// or none. Requires the session lock.
func (e *Engine) releaseGrant(s contract.Caller, cmd grammar.Command) {
	var h *table.Hold
	e.step(func(t *table.Table) { h = t.Ending(cmd.Key, cmd.Fence) })
	force := script.Force{Key: cmd.Key, Fence: cmd.Fence, Handle: true}
	if h != nil && h.Kind.Shares() { // a crowd of holders is not searched
		force.Owner = h.Owner
	}
	call := force.Call
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainCommand{Call: call, Reply: func(o callOutcome) []byte {
		ended, err := decoded(o.Reply, o.Err, script.DecodeForced)
		unknown := err == nil && len(ended) == 0 && o.Repeated // an earlier copy has ended the grant, or it was over before
		e.step(func(t *table.Table) { t.Ended(h, len(ended) > 0 || unknown) })
		switch {
		case err != nil:
			return failureReply(err)
		case unknown:
			return failureReply(contract.ErrInDoubt)
		case len(ended) == 0 && e.mayHaveLost(&s, &cmd):
			return lostLeaseReply()
		case len(ended) == 0:
			return notHeldReply(false, cmd.Fence)
		}
		for _, a := range ended { // after a failover two owners may have been granted the same fence
			a.Handle = true
			e.forced(cmd.Key, a)
		}
		return redcon.AppendInt(nil, 1)
	}}})
}

// ownerOf is the owner of the grant that a command names by its fence, if a session here has the grant or this session
// has lost it. Empty: it is the session's own. Requires the session lock.
func (e *Engine) ownerOf(s *contract.Caller, cmd *grammar.Command) (owner string, known bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	session, own := e.beginLocked(s, cmd)
	h := e.table.Meant(&session.Session, own, cmd.Fence)
	if h != nil && h.Fence == cmd.Fence || session.Losses.Fence(own) == cmd.Fence {
		return "", true
	}
	if h := e.table.HoldByFence(cmd.Key, cmd.Fence); h != nil {
		return h.Owner, true
	}
	return "", false
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
