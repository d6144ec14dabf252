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
	e.calls.Send(call(), &callRequest{Session: s.Session, For: plainCommand{Call: call, Reply: func(o callOutcome) []byte {
		a, err := decoded(o.Reply, o.Err, script.DecodeDescribed)
		switch {
		case err != nil:
			return failureReply(err)
		case len(a.Holders) == 0:
			return resp.AppendNull(nil, proto)
		}
		e.mu.Lock()
		local, _ := e.countLocked(cmd.Key)
		holders := make([]lockHolder, 0, len(a.Holders))
		for _, h := range a.Holders {
			one := lockHolder{Holder: h}
			if here := e.table.HoldByFence(cmd.Key, h.Fence); here != nil && here.Owner == h.Owner {
				one.Client = here.Client()
			}
			holders = append(holders, one)
		}
		e.mu.Unlock()
		first := holders[0]
		i := lockInfo{
			Hold: Hold{
				Owner: first.Owner, Holds: first.Holds, TTL: a.PTTL, Fence: first.Fence, Mode: a.Mode, Note: first.Note,
				Waiters: local, Fair: int(a.FairWaiters), Client: first.Client,
			},
			HeldFor: script.HeldFor(first.Fence, a.Now), Limit: a.Limit,
		}
		if a.Mode != script.ModeExclusive || len(holders) > 1 {
			i.Holders = holders
		}
		return appendLockInfo(nil, proto, i)
	}}})
}
