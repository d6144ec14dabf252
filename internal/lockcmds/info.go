package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/replies"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// startInfo executes LOCKINFO. Requires the session lock.
func (e *Engine) startInfo(s contract.Caller, cmd grammar.Command) {
	proto := s.Proto
	call := script.Info{Key: cmd.Key}.Call()
	e.calls.Send(call, &calls.Request{Session: s.Session, For: calls.Plain{Copy: call, Later: call, Reply: func(o calls.Outcome) []byte {
		a, err := calls.Decoded(o.Reply, o.Err, script.DecodeHolder)
		switch {
		case err != nil:
			return replies.Failure(err)
		case !a.Held:
			return resp.AppendNull(nil, proto)
		}
		local, _ := e.waiters.Count(cmd.Key)
		return replies.AppendInfo(nil, proto, replies.Info{
			Owner: a.Owner, Holds: a.Holds, TTL: a.PTTL.Milliseconds(), Fence: a.Fence, Fair: a.FairWaiters,
			Local: int64(local),
		})
	}}})
}
