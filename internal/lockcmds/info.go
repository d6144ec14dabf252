package lockcmds

import (
	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

func (e *Engine) startInfo(s Caller, cmd grammar.Command) {
	proto := s.Proto
	call := script.Info{Key: cmd.Key}.Call()
	e.send(&request{
		s: s.Session, call: call, again: &call, pipelined: true,
		done: func(o outcome) []byte {
			a, err := decoded(o.reply, o.err, script.DecodeHolder)
			switch {
			case err != nil:
				return appendFailure(nil, err)
			case !a.Held:
				return resp.AppendNull(nil, proto)
			}
			return appendInfo(nil, proto, lockInfo{
				owner: a.Owner, holds: a.Holds, ttl: a.PTTL.Milliseconds(), fence: a.Fence, fair: a.FairWaiters,
				local: e.localWaiters(cmd.Key),
			})
		},
	})
}

func (e *Engine) localWaiters(key string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.waits.lenLocked(key)
}

// lockInfo is what LOCKINFO and LOCKLIST show of one lock.
type lockInfo struct {
	key                            string // shown by LOCKLIST only
	owner                          string
	holds, ttl, fence, fair, local int64
	client                         ClientInfo // shown by LOCKLIST only
}

func appendInfo(dst []byte, proto int, i lockInfo) []byte {
	pairs := 6
	if i.key != "" {
		pairs = 9
	}
	dst = resp.AppendMapHeader(dst, proto, pairs)
	if i.key != "" {
		dst = appendText(dst, "key", i.key)
	}
	dst = appendText(dst, "owner", i.owner)
	dst = appendNumber(dst, "holds", i.holds)
	dst = appendNumber(dst, "ttl-ms", i.ttl)
	dst = appendNumber(dst, "fence", i.fence)
	dst = appendNumber(dst, "fair-waiters", i.fair)
	dst = appendNumber(dst, "local-waiters", i.local)
	if i.key != "" {
		dst = appendText(dst, "client", i.client.Addr)
		dst = appendText(dst, "name", i.client.Name)
	}
	return dst
}

func appendText(dst []byte, name, value string) []byte {
	return redcon.AppendBulkString(redcon.AppendBulkString(dst, name), value)
}

func appendNumber(dst []byte, name string, value int64) []byte {
	return redcon.AppendInt(redcon.AppendBulkString(dst, name), value)
}
