package lockcmds

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// startList executes LOCKLIST: the locks that sessions of this identity hold through this proxy, by key, as known here.
// A lock that several sessions hold for one owner is shown once, with the session that acquired first; fair-waiters are
// those of this proxy. Redis is asked first whether the session may run scripts, as for every lock command: it may have
// to authenticate. Requires the session lock.
func (e *Engine) startList(s contract.Caller, cmd grammar.Command) {
	e.show(s, func(now int64) []byte {
		found := e.find(cmd.Match, cmd.Count)
		for n := range found {
			found[n].Held = script.HeldFor(found[n].Fence, now)
			yield(n)
		}
		return Reply(s.Proto, found)
	})
}

// show has a job make a reply from what the engine knows and Redis's time, if Redis lets the session run scripts.
// Requires the session lock.
func (e *Engine) show(s contract.Caller, make func(now int64) []byte) {
	e.calls.Send(script.Ask{}.Call(), &callRequest{Session: s.Session, For: plainCommand{Reply: func(o callOutcome) []byte {
		now, err := decoded(o.Reply, o.Err, script.DecodeAsk)
		if err != nil {
			return failureReply(err)
		}
		e.calls.Background(jobs.List, func() {
			reply := make(now)
			e.failstop.Do(s.Session, func() { s.Reply(reply) })
		})
		return nil
	}}})
}

// find lists the locks that are held through this engine. Requires no locks.
func (e *Engine) find(pattern string, most int) []lockInfo {
	return findLocks(e.heldSlice, e.Holds(), pattern, most)
}

// Held is one lock that is held through an engine.
type Held struct {
	Key, Owner   string
	Holds, Fence int64
	TTL          time.Duration       // the rest of the lease
	Waiters      int                 // of this proxy
	Client       contract.ClientInfo // of those that hold it for this owner, the first
}

// Held lists the locks that are held through this engine, by key. It returns the first of them; 0 is no limit. Not for
// an event loop: it looks at all locks.
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
func (e *Engine) Holds() int { return int(e.held.Load()) }
