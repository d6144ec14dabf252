package lockcmds

import (
	"cmp"
	"slices"
	"time"

	"github.com/tidwall/match"
	"github.com/tidwall/redcon"

	"lockproxy/internal/resp"
)

func (e *Engine) startInfo(s Session, cmd Command) {
	proto := s.Proto()
	e.script(s, Call{
		Script: e.scripts.info,
		Keys:   []string{cmd.Key, queueOf(cmd.Key)},
		GoOn:   true,
		Done: func(reply resp.Value, err error) []byte {
			switch {
			case err != nil:
				return appendFailure(nil, err)
			case reply.IsError():
				return appendFailure(nil, redisError(reply.Str))
			case len(reply.Elems) < 5:
				return resp.AppendNull(nil, proto)
			}
			f := reply.Elems
			return appendInfo(nil, proto, lockInfo{
				owner: string(f[0].Str), holds: f[1].Int, ttl: f[2].Int, fence: f[3].Int, fair: f[4].Int,
				local: e.localWaiters(cmd.Key),
			})
		},
	})
}

func (e *Engine) localWaiters(key string) int64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	if r := e.rooms[key]; r != nil {
		return int64(r.plain.len + r.fair.len)
	}
	return 0
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

// list is LOCKLIST: what is held through this proxy, by key, as known here without asking Redis. A lock that several
// sessions hold for one owner is shown once, with the session that acquired first; fair-waiters are those of this
// proxy.
func (e *Engine) list(proto int, cmd Command) []byte {
	found := e.find(cmd.Match)
	if cmd.Count > 0 && len(found) > cmd.Count {
		found = found[:cmd.Count]
	}
	out := redcon.AppendArray(nil, len(found))
	for _, i := range found {
		out = appendInfo(out, proto, i)
	}
	return out
}

// find lists the locks held through this engine whose key matches the pattern; an empty one matches all.
func (e *Engine) find(pattern string) []lockInfo {
	var found []lockInfo
	now := time.Now()
	e.mu.Lock()
	for k, h := range e.holds {
		if pattern != "" && !match.Match(k.key, pattern) {
			continue
		}
		i := lockInfo{
			key: k.key, owner: k.owner, holds: h.count, fence: h.fence,
			ttl: max(0, h.lease.Deadline().Sub(now).Milliseconds()),
		}
		if r := e.rooms[k.key]; r != nil {
			i.fair, i.local = int64(r.fair.len), int64(r.plain.len+r.fair.len)
		}
		if len(h.holders) > 0 {
			i.client = h.holders[0].info
		}
		found = append(found, i)
	}
	e.mu.Unlock()
	slices.SortFunc(found, func(a, b lockInfo) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.owner, b.owner))
	})
	return found
}

// Held is one lock that is held through an engine.
type Held struct {
	Key, Owner   string
	Holds, Fence int64
	TTL          time.Duration // what is left of the lease
	Waiters      int           // of this proxy
	Client       ClientInfo    // of those that hold it for this owner, the first
}

// Held lists the locks that are held through this engine, by key.
func (e *Engine) Held() []Held {
	var list []Held
	for _, i := range e.find("") {
		list = append(list, Held{
			Key: i.key, Owner: i.owner, Holds: i.holds, Fence: i.fence, TTL: time.Duration(i.ttl) * time.Millisecond,
			Waiters: int(i.local), Client: i.client,
		})
	}
	return list
}

// Holds is how many locks are held through this engine.
func (e *Engine) Holds() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.holds)
}
