package lockcmds

import (
	"cmp"
	"runtime"
	"slices"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/glob"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// The cost of a list grows with the number of locks, and a client chooses the time, the number of lists and the pattern. So a job makes
// the list. It holds Engine.mu for one slice at a time, and matches, sorts and prints without it.

// listSlice is how many locks are looked at in one go.
const listSlice = 256

// heldLocks is the holds of an engine in no order, so that they can be walked in slices. It is guarded by Engine.mu.
type heldLocks []*hold

func (l *heldLocks) add(h *hold) {
	h.place = len(*l)
	*l = append(*l, h)
}

// remove has the last one take the place of h.
func (l *heldLocks) remove(h *hold) {
	last := len(*l) - 1
	moved := (*l)[last]
	(*l)[h.place], moved.place = moved, h.place
	(*l)[last] = nil
	*l = (*l)[:last]
}

// startList executes LOCKLIST: the locks that sessions of this identity hold through this proxy, by key, as known here. A lock that
// several sessions hold for one owner is shown once, with the session that acquired first; fair-waiters are those of this proxy.
// Redis is asked first whether the session may run scripts, as for every lock command: it may have to authenticate. Requires the session lock.
func (e *Engine) startList(s Caller, cmd grammar.Command) {
	e.script(s.Session, Call{Call: script.Ask{}.Call(), Done: func(reply resp.Value, err error) []byte {
		if err == nil {
			err = script.DecodeAsk(reply)
		}
		if err != nil {
			return appendFailure(nil, err)
		}
		e.submitList(s, cmd)
		return nil
	}})
}

// submitList has a job make the list. Requires the session lock.
func (e *Engine) submitList(s Caller, cmd grammar.Command) {
	proto := s.Proto
	e.tending.Add(1)
	e.jobs.Submit(jobs.List, func() {
		defer e.tending.Add(-1)
		reply := e.list(proto, cmd)
		e.do(s.Session, func() { s.Reply(reply) })
	})
}

func (e *Engine) list(proto int, cmd grammar.Command) []byte {
	found := e.find(cmd.Match, cmd.Count)
	size := 0
	for _, i := range found {
		size += typicalInfo + len(i.key) + len(i.owner) + len(i.client.Addr) + len(i.client.Name)
	}
	out := redcon.AppendArray(make([]byte, 0, size), len(found))
	for n, i := range found {
		out = appendInfo(out, proto, i)
		yield(n)
	}
	return out
}

// typicalInfo is what a lock takes in a list besides its names: little more than that.
const typicalInfo = 256

// yield lets the engines that move bytes go first, now and then in a loop that makes a list.
func yield(i int) {
	if i%listSlice == listSlice-1 {
		runtime.Gosched()
	}
}

// find lists the locks held through this engine whose key matches the pattern, by key, and at most most of them; an empty pattern
// matches all, and 0 is no limit. A lock that is taken or let go meanwhile may be in the list or not. Requires no locks.
func (e *Engine) find(pattern string, most int) []lockInfo {
	matches := func(string) bool { return true }
	if pattern != "" {
		matches = glob.Compile(pattern).Match
	}
	var found, slice []lockInfo
	if pattern == "" && most == 0 {
		found = make([]lockInfo, 0, e.Holds())
	}
	for end := -1; end != 0; {
		slice, end = e.heldSlice(slice[:0], end)
		for _, i := range slice {
			if matches(i.key) {
				found = append(found, i)
			}
		}
		if most > 0 && len(found) >= 2*most+listSlice {
			found = firstByKey(found, most)
		}
		runtime.Gosched() // as yield does
	}
	return firstByKey(found, most)
}

// heldSlice appends the locks before place end of the list, the last first, and returns up to where it has come; end -1 begins.
// Walked backwards, what is there all the time is seen though others come and go: the last one, which takes the place of one that
// goes, has been seen already. It may be seen twice.
func (e *Engine) heldSlice(slice []lockInfo, end int) ([]lockInfo, int) {
	now := e.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if end < 0 || end > len(e.held) {
		end = len(e.held)
	}
	begin := max(0, end-listSlice)
	for _, h := range e.held[begin:end] {
		i := lockInfo{
			key: h.key, owner: h.owner, holds: h.count, fence: h.fence,
			ttl: max(0, h.lease.Deadline().Sub(now).Milliseconds()),
		}
		if q := e.waits.set.Find(h.key); q != nil {
			all, own := q.Len()
			i.fair, i.local = int64(own), int64(all)
		}
		if len(h.holders) > 0 {
			i.client = h.holders[0].info
		}
		slice = append(slice, i)
	}
	return slice, begin
}

// firstByKey returns the first of the locks by key, each once; 0 is no limit.
func firstByKey(found []lockInfo, most int) []lockInfo {
	order := make([]int, len(found)) // cheaper to move than what was found
	for i := range order {
		order[i] = i
	}
	steps := 0
	slices.SortFunc(order, func(a, b int) int {
		yield(steps)
		steps++
		return cmp.Or(cmp.Compare(found[a].key, found[b].key), cmp.Compare(found[a].owner, found[b].owner))
	})
	if most == 0 {
		most = len(found)
	}
	first := make([]lockInfo, 0, min(most, len(found)))
	for n, i := range order {
		if last := len(first) - 1; last >= 0 && first[last].key == found[i].key && first[last].owner == found[i].owner {
			continue
		}
		if len(first) == most {
			break
		}
		first = append(first, found[i])
		yield(n)
	}
	return first
}

// Held is one lock that is held through an engine.
type Held struct {
	Key, Owner   string
	Holds, Fence int64
	TTL          time.Duration // what is left of the lease
	Waiters      int           // of this proxy
	Client       ClientInfo    // of those that hold it for this owner, the first
}

// Held lists the locks that are held through this engine, by key. It returns the first of them; 0 is no limit. Not for an event loop: it looks at all locks.
func (e *Engine) Held(most int) []Held {
	var list []Held
	for _, i := range e.find("", most) {
		list = append(list, Held{
			Key: i.key, Owner: i.owner, Holds: i.holds, Fence: i.fence, TTL: time.Duration(i.ttl) * time.Millisecond,
			Waiters: int(i.local), Client: i.client,
		})
	}
	return list
}

// Holds is how many locks are held through this engine.
func (e *Engine) Holds() int { return int(e.holding.Load()) }

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
