package lockcmds

import (
	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
)

// startForce executes FORCEUNLOCK. It is not repeated: a copy could end a later grant.
func (e *Engine) startForce(s contract.Caller, cmd grammar.Command) {
	call := script.Force{Key: cmd.Key}.Call()
	e.calls.Send(call, &calls.Request{Session: s.Session, Pipelined: true, For: calls.Plain{Reply: func(o calls.Outcome) []byte {
		a, err := calls.Decoded(o.Reply, o.Err, script.DecodeForced)
		switch {
		case err != nil:
			return replies.Failure(err)
		case !a.Held:
			return redcon.AppendInt(nil, 0)
		}
		e.forced(ledger.Key{Lock: cmd.Key, Owner: a.Owner}, a.Fence)
		return redcon.AppendInt(nil, 1)
	}}})
}
