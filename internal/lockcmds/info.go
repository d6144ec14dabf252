package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/listing"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// startList executes LOCKLIST: the locks that sessions of this identity hold through this proxy, by key, as known here. A lock that
// several sessions hold for one owner is shown once, with the session that acquired first; fair-waiters are those of this proxy.
// Redis is asked first whether the session may run scripts, as for every lock command: it may have to authenticate. Requires the session lock.
func (e *Engine) startList(s contract.Caller, cmd grammar.Command) {
	e.calls.Send(script.Ask{}.Call(), &calls.Request{Session: s.Session, For: calls.Plain{Reply: func(o calls.Outcome) []byte {
		err := o.Err
		if err == nil {
			err = script.DecodeAsk(o.Reply)
		}
		if err != nil {
			return replies.Failure(err)
		}
		proto := s.Proto
		e.calls.Background(jobs.List, func() {
			reply := listing.Reply(proto, e.find(cmd.Match, cmd.Count))
			e.guard.Do(s.Session, func() { s.Reply(reply) })
		})
		return nil
	}}})
}

// find lists the locks that are held through this engine. Requires no locks.
func (e *Engine) find(pattern string, most int) []replies.Info {
	return listing.Find(e.heldSlice, e.Holds(), pattern, most)
}

// heldSlice is a listing.Source. It walks backwards: the last hold, which takes the place of one that goes, has been seen already.
func (e *Engine) heldSlice(slice []replies.Info, end int) ([]replies.Info, int) {
	now := e.clock.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	held := e.ledger.List()
	if end < 0 || end > len(held) {
		end = len(held)
	}
	begin := max(0, end-listing.Slice)
	for _, entry := range held[begin:end] {
		h := holdOf(entry)
		i := replies.Info{
			Key: h.Lock, Owner: h.Owner, Holds: h.Count, Fence: h.Fence,
			TTL: max(0, h.lease.Deadline().Sub(now).Milliseconds()),
		}
		if q := e.waits.set.Find(h.Lock); q != nil {
			all, own := q.Len()
			i.Fair, i.Local = int64(own), int64(all)
		}
		if len(h.Holders()) > 0 {
			i.Client = contract.ClientInfo(h.Holders()[0].Client)
		}
		slice = append(slice, i)
	}
	return slice, begin
}

// Held is one lock that is held through an engine.
type Held struct {
	Key, Owner   string
	Holds, Fence int64
	TTL          time.Duration       // what is left of the lease
	Waiters      int                 // of this proxy
	Client       contract.ClientInfo // of those that hold it for this owner, the first
}

// Held lists the locks that are held through this engine, by key. It returns the first of them; 0 is no limit. Not for an event loop: it looks at all locks.
func (e *Engine) Held(most int) []Held {
	var list []Held
	for _, i := range e.find("", most) {
		list = append(list, Held{
			Key: i.Key, Owner: i.Owner, Holds: i.Holds, Fence: i.Fence, TTL: time.Duration(i.TTL) * time.Millisecond,
			Waiters: int(i.Local), Client: i.Client,
		})
	}
	return list
}

// Holds is how many locks are held through this engine.
func (e *Engine) Holds() int { return int(e.holding.Load()) }

func (e *Engine) startInfo(s contract.Caller, cmd grammar.Command) {
	proto := s.Proto
	call := script.Info{Key: cmd.Key}.Call()
	e.calls.Send(call, &calls.Request{Session: s.Session, Pipelined: true, For: calls.Plain{Copy: call, Reply: func(o calls.Outcome) []byte {
		a, err := calls.Decoded(o.Reply, o.Err, script.DecodeHolder)
		switch {
		case err != nil:
			return replies.Failure(err)
		case !a.Held:
			return resp.AppendNull(nil, proto)
		}
		return replies.AppendInfo(nil, proto, replies.Info{
			Owner: a.Owner, Holds: a.Holds, TTL: a.PTTL.Milliseconds(), Fence: a.Fence, Fair: a.FairWaiters,
			Local: e.waits.count(cmd.Key),
		})
	}}})
}
