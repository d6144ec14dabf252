package lockcmds

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// withHandle runs a command that names a grant by FENCE, and no owner, for the owner of that grant: the fence is the
// handle of the grant. The session's own grant comes first, then one of another session here; Redis is asked about any
// other. elsewhere: the grant is not known here. Requires the session lock.
func (e *Engine) withHandle(s contract.Caller, cmd grammar.Command, run func(s contract.Caller, cmd grammar.Command, elsewhere bool)) {
	e.mu.Lock()
	session, _ := e.beginLocked(&s, cmd.Key, "")
	owner, known := e.ownerLocked(session, cmd.Key, cmd.Fence)
	e.mu.Unlock()
	if known {
		cmd.Owner = owner
		run(s, cmd, false)
		return
	}
	call := script.Info{Key: cmd.Key}.Call
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainAsker{Call: call, Reply: func(o callOutcome) []byte {
		a, err := decoded(o.Reply, o.Err, script.DecodeHolder)
		switch {
		case err != nil:
			return failureReply(err)
		case a.Fence != cmd.Fence || a.Owner == "":
			return notHeldReply(true, cmd.Fence)
		case e.hasEnded(session):
			return nil
		}
		cmd.Owner = a.Owner
		run(s, cmd, true)
		return nil
	}}})
}

// ownerLocked is the owner of a grant that a session here has, or that this session has lost. Empty: it is the
// session's own. Requires Engine.mu.
func (e *Engine) ownerLocked(s *holdSession, lock string, fence int64) (owner string, known bool) {
	if own := e.table.Hold(table.Key{Lock: lock, Owner: s.Name}); own != nil && own.Fence == fence || s.Losses.Fence(lock, s.Name) == fence {
		return "", true
	}
	if h := e.table.Holder(lock); h != nil && h.Fence == fence {
		return h.Owner, true
	}
	return "", false
}

// hasEnded reports whether the client of a session has gone. Requires no locks.
func (e *Engine) hasEnded(s *holdSession) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.ended
}

// tellReleased tells the holder's proxy that one hold of a grant was released by its handle: it is no loss.
func (e *Engine) tellReleased(lock string, fence int64) {
	text := "-" + strconv.FormatInt(fence, 10) + " " + lock
	e.calls.Background(jobs.Loss, func() { e.tellHolders(lock, text) })
	e.calls.After(tellAgainAfter, jobs.Loss, func() { e.tellHolders(lock, text) })
}
