package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// startInfo executes LOCKINFO. Requires the session lock.
func (e *Engine) startInfo(s contract.Caller, cmd grammar.Command) {
	proto := s.Proto
	call := script.Info{Key: cmd.Key}.Call
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainAsker{Call: call, Reply: func(o callOutcome) []byte {
		a, err := decoded(o.Reply, o.Err, script.DecodeHolder)
		switch {
		case err != nil:
			return failureReply(err)
		case !a.Held:
			return resp.AppendNull(nil, proto)
		}
		e.mu.Lock()
		local, _ := e.countLocked(cmd.Key)
		here := e.holderLocked(cmd.Key)
		e.mu.Unlock()
		i := lockInfo{
			Owner: a.Owner, Holds: a.Holds, TTL: a.PTTL.Milliseconds(), Fence: a.Fence, Fair: a.FairWaiters, Local: int64(local), Held: a.HeldFor,
		}
		if here.Owner == a.Owner {
			i.Client = contract.ClientInfo{Addr: here.Addr, Name: here.Name}
		}
		return appendLockInfo(nil, proto, i)
	}}})
}
