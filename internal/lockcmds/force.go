package lockcmds

import (
	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
)

// startForce executes FORCEUNLOCK. It is not repeated: a copy could end a later grant.
func (e *Engine) startForce(s contract.Caller, cmd grammar.Command) {
	e.calls.Send(&calls.Request{Session: s.Session, Call: script.Force{Key: cmd.Key}.Call(), Pipelined: true, Done: func(o calls.Outcome) []byte {
		a, err := calls.Decoded(o.Reply, o.Err, script.DecodeForced)
		switch {
		case err != nil:
			return replies.Failure(err)
		case !a.Held:
			return redcon.AppendInt(nil, 0)
		}
		e.forced(holdKey{cmd.Key, a.Owner}, a.Fence)
		return redcon.AppendInt(nil, 1)
	}})
}

// forced tells the holder of the grant that was ended, if it is here, and wakes the waiters here. A holder elsewhere, or one whose
// grant is still on its way here, learns it from its next renewal.
func (e *Engine) forced(k holdKey, fence int64) {
	var told *loss
	e.mu.Lock()
	if h := e.holds[k]; h != nil && h.fence == fence {
		told = e.loseLocked(h, ReasonForced, nil)
	}
	e.waits.wakeLocked(k.key)
	e.mu.Unlock()
	e.tell(told)
}
