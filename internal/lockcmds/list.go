package lockcmds

import (
	"cmp"
	"iter"
	"runtime"
	"slices"
	"time"

	"github.com/tidwall/redcon"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// This file makes lists of locks. The cost of a list grows with the number of locks, and a client chooses the time, the
// number of lists and the pattern. So a job makes the list. It takes the locks in slices, each under the lock of the
// engine, and matches, sorts and prints between them without it.

// startList executes LOCKLIST: the locks that sessions of this identity hold through this proxy, by key, as known here.
// A lock that several sessions hold for one owner is shown once, with the session that acquired first; fair-waiters are
// those of this proxy. Redis is asked first whether the session may run scripts, as for every lock command: it may have
// to authenticate. Requires the session lock.
func (e *Engine) startList(s contract.Caller, cmd grammar.Command) {
	e.show(s, func(now int64) []byte { return listReply(s.Proto, now, e.find(cmd.Match, cmd.Count)) })
}

// show has a job make a reply from what the engine knows and Redis's time, if Redis lets the session run scripts.
// Requires the session lock.
func (e *Engine) show(s contract.Caller, make func(now int64) []byte) {
	answer := func(o callOutcome) []byte {
		now, err := decoded(o.Reply, o.Err, script.DecodeAsk)
		if err != nil {
			return failureReply(err)
		}
		e.calls.Background(jobs.List, func() {
			if !e.failstop.Do(s.Session, func() {}) {
				return // the client hung up while others' lists were made
			}
			reply := make(now)
			e.failstop.Do(s.Session, func() { s.Reply(reply) })
		})
		return nil
	}
	e.calls.Send(script.Ask{}.Call(), &callRequest{Session: s.Session, For: plainCommand{Reply: answer}})
}

// Hold is one hold of a lock through an engine, as clients and operators see it.
type Hold struct {
	Key, Owner    string
	Holds, Fence  int64
	Since         time.Time           // when the command was sent that acquired it
	TTL           time.Duration       // the rest of the lease
	Fixed         bool                // the client has set the lease: it is not renewed
	Late          bool                // it should have been renewed by now
	Mode          string              // in the words of LOCKINFO
	Limit         int                 // of a permit: how many may hold the lock, by the word of its acquire
	Waiters, Fair int                 // for the lock, of this engine; and the fair ones of them
	Note          string              // what its client says of it
	Client        contract.ClientInfo // of those that hold it for this owner, the first
	Reentry       Reentry             // of the connection of that client: ReentryConnection or ReentryOwner
}

// List lists the locks that are held through this engine, by key. It returns the first of them; 0 is no limit. Not for
// an event loop: it looks at all locks.
func (e *Engine) List(most int) []Hold { return e.find("", most) }

// Holds is how many locks are held through this engine.
func (e *Engine) Holds() int { return int(e.held.Load()) }

// holds yields the holds of locks through this engine, as inSlices does.
func (e *Engine) holds() iter.Seq[Hold] {
	return inSlices(e, (*table.Table).Holds, func(h *table.Hold) (Hold, bool) {
		all, fair := e.countLocked(h.Lock)
		reentry := ReentryConnection
		if parts := h.Parts(); len(parts) > 0 && parts[0].Session.Each {
			reentry = ReentryOwner
		}
		now := e.opts.Clock.Now()
		left := max(0, h.Lease.Deadline().Sub(now))
		ends := !h.Until.IsZero() && now.Add(h.TTL).After(h.Until) // its last renewals give it less
		return Hold{
			Key: h.Lock, Owner: h.Owner, Holds: h.Count, Fence: h.Fence, Since: h.Since, Fixed: h.Fixed,
			TTL: left, Late: !h.Fixed && !ends && left < h.TTL/2, Mode: kindOf(h.Key).Mode(), Limit: h.Limit,
			Waiters: all, Fair: fair, Client: h.Client(), Note: h.Note, Reentry: reentry,
		}, true
	})
}

// listSlice is how many locks are looked at in one go.
const listSlice = 256

// inSlices yields what see makes of the values of a list of the table, in no order. It looks at a slice of them at a
// time, backwards: the last value, which takes the place of one that is removed, has been seen already. So a value that
// is there all the time is seen, perhaps twice. The caller holds no locks. see requires keeper.mu.
func inSlices[T, V any](e *Engine, list func(*table.Table) []T, see func(T) (V, bool)) iter.Seq[V] {
	return func(yield func(V) bool) {
		var slice []V
		for end, begun := 0, false; !begun || end > 0; begun = true {
			slice = slice[:0]
			e.mu.Lock()
			all := list(e.table)
			if !begun || end > len(all) {
				end = len(all)
			}
			begin := max(0, end-listSlice)
			for _, one := range all[begin:end] {
				if v, ok := see(one); ok {
					slice = append(slice, v)
				}
			}
			e.mu.Unlock()
			for _, v := range slice {
				if !yield(v) {
					return
				}
			}
			end = begin
			runtime.Gosched() // as giveWay does
		}
	}
}

// find lists the locks that are held through this engine, as findIn does.
func (e *Engine) find(pattern string, most int) []Hold {
	return findIn(e.holds(), e.Holds(), pattern, most)
}

// findIn lists the holds whose key matches the pattern, by key, and at most most of them; an empty pattern matches all,
// and 0 is no limit. size is how many there are, roughly. A lock that is taken or let go meanwhile may be in the list
// or not.
func findIn(holds iter.Seq[Hold], size int, pattern string, most int) []Hold {
	var found []Hold
	if pattern == "" && most == 0 {
		found = make([]Hold, 0, size)
	}
	for h := range holds {
		if pattern == "" || matches(pattern, h.Key) {
			found = append(found, h)
		}
		if most > 0 && len(found) >= 2*most+listSlice {
			found = firstByKey(found, most)
		}
	}
	return firstByKey(found, most)
}

// firstByKey returns the first of the locks by key, each once; 0 is no limit.
func firstByKey(found []Hold, most int) []Hold {
	order := make([]int, len(found)) // cheaper to move than the locks
	for i := range order {
		order[i] = i
	}
	steps := 0
	slices.SortFunc(order, func(a, b int) int {
		giveWay(steps)
		steps++
		x, y := &found[a], &found[b]
		return cmp.Or(cmp.Compare(x.Key, y.Key), cmp.Compare(x.Owner, y.Owner),
			cmp.Compare(x.Mode, y.Mode), cmp.Compare(x.Fence, y.Fence))
	})
	if most == 0 {
		most = len(found)
	}
	first := make([]Hold, 0, min(most, len(found)))
	for n, i := range order {
		if last := len(first) - 1; last >= 0 && first[last].same(&found[i]) {
			continue
		}
		if len(first) == most {
			break
		}
		first = append(first, found[i])
		giveWay(n)
	}
	return first
}

// same reports whether both are one hold, which was seen twice: perhaps by two grants of its owner, of which one has
// ended.
func (h *Hold) same(o *Hold) bool {
	return h.Key == o.Key && h.Owner == o.Owner && h.Mode == o.Mode && (h.Mode != script.ModeLimit || h.Fence == o.Fence)
}

// listReply is the reply of LOCKLIST at that time of Redis.
func listReply(proto int, now int64, found []Hold) []byte {
	size := 0
	for _, h := range found {
		size += typicalInfo + len(h.Key) + len(h.Owner) + len(h.Client.Addr) + len(h.Client.Name)
	}
	out := redcon.AppendArray(make([]byte, 0, size), len(found))
	for n, h := range found {
		out = appendLockInfo(out, proto, lockInfo{Hold: h, HeldFor: script.HeldFor(h.Fence, now)})
		giveWay(n)
	}
	return out
}

// typicalInfo is what a lock takes in a list besides its names: little more than that.
const typicalInfo = 256

// giveWay lets the engines that move bytes go first, now and then in a loop that makes a list.
func giveWay(i int) {
	if i%listSlice == listSlice-1 {
		runtime.Gosched()
	}
}
