package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// This file has the kinds of locks. The engine asks the kind. Only keyLocked, hasOtherType, startAcquire and mayHaveLost
// name single kinds. A new kind is a new value, and one more of kinds.
//
//	keyLocked(command) ──► lockKind ──┬─ the rules about several holders and waiters ──► table.Key, table.Waiter
//	                                  └─ the calls of its scripts; all kinds answer in the same forms
//
// How a client waits is no matter of the kind: plain or fair, a waiter of any kind stands in the one queue of its lock.

// lockKind is one kind of lock: its rules, and what is asked of Redis for a holder or a waiter. It does no I/O and
// keeps no state.
type lockKind interface {
	table.Kind
	// Mode is the word for the kind in LOCKINFO, LOCKLIST and metrics.
	Mode() string
	// Ask is an attempt of an acquire: for itself, or for the crowd whose first waiter it is.
	Ask(a asking, w *table.Waiter) script.Call
	// HandOver is a release that grants the lock to one of the waiters. Their kinds are those of which HandsOver says so.
	HandOver(h script.HandOver) script.Call
	Release(r script.Release) script.Call
	Extend(x script.Extend) script.Call
	Drop(d script.Drop) script.Call
	Renew(r script.Renew) script.Call
	Prove(p script.Prove) script.Call
}

// kinds are all kinds.
var kinds = []lockKind{exclusive{}, shared{}, limit{}}

// exclusive is the lock of LOCK, TRYLOCK and FAIRLOCK: one owner holds it, and may acquire it again. In Redis it has
// the layout of Redisson's RLock.
type exclusive struct{ hashCalls }

func (exclusive) Mode() string                           { return script.ModeExclusive }
func (exclusive) Reenters() bool                         { return true }
func (exclusive) Shares() bool                           { return false }
func (exclusive) HandsOver(to table.Kind) bool           { return to == exclusive{} }
func (exclusive) HandOver(h script.HandOver) script.Call { return h.Call() }

func (exclusive) Ask(a asking, w *table.Waiter) script.Call {
	if at := placed(a, w); at.Way != script.AtNoPlace {
		return at.Call()
	}
	return a.Acquire.Call()
}

// shared is the lock of SHARED: any number of owners hold it beside each other, and none beside an exclusive holder. In
// Redis it has the layout of Redisson's read lock. The scripts are those of exclusive, but for the acquire. A release
// hands the lock over to no waiter: other holders may be left.
type shared struct{ hashCalls }

func (shared) Mode() string                           { return script.ModeShared }
func (shared) Reenters() bool                         { return true }
func (shared) Shares() bool                           { return true }
func (shared) HandsOver(table.Kind) bool              { return false }
func (shared) HandOver(h script.HandOver) script.Call { return h.Release.Call() }
func (shared) Ask(a asking, w *table.Waiter) script.Call {
	return placed(a, w).SharedCall()
}

// hashCalls are the calls that exclusive and shared have in common.
type hashCalls struct{}

func (hashCalls) Release(r script.Release) script.Call { return r.Call() }
func (hashCalls) Extend(x script.Extend) script.Call   { return x.Call() }
func (hashCalls) Drop(d script.Drop) script.Call       { return d.Call() }
func (hashCalls) Renew(r script.Renew) script.Call     { return r.Call() }
func (hashCalls) Prove(p script.Prove) script.Call     { return p.Call() }

// limit is the lock of LIMIT: at most n hold it at the same time, each acquire by a permit of its own. The answer to an
// acquire says whether another permit is left. In Redis it has the layout of Redisson's permit semaphore, a type of its
// own: calls of the other kinds are refused with WRONGTYPE, and its calls about their keys are.
type limit struct{}

func (limit) Mode() string                           { return script.ModeLimit }
func (limit) Reenters() bool                         { return false }
func (limit) Shares() bool                           { return false }
func (limit) HandsOver(to table.Kind) bool           { return to == limit{} }
func (limit) HandOver(h script.HandOver) script.Call { return h.LimitCall() }
func (limit) Release(r script.Release) script.Call   { return r.LimitCall() }
func (limit) Extend(x script.Extend) script.Call     { return x.LimitCall() }
func (limit) Drop(d script.Drop) script.Call         { return d.LimitCall() }
func (limit) Renew(r script.Renew) script.Call       { return r.LimitCall() }
func (limit) Prove(p script.Prove) script.Call       { return p.LimitCall() }
func (limit) Ask(a asking, w *table.Waiter) script.Call {
	return placed(a, w).LimitCall()
}

// placed asks at the waiter's own place, or at that of the crowd whose first waiter it is. A fair acquire takes or
// keeps its place in the queue, unless it does not wait.
func placed(a asking, w *table.Waiter) script.Attempt {
	s := script.Attempt{Acquire: a.Acquire, Wait: a.FairWait, Enqueue: w.Placed}
	if first, stays, enqueue := w.First(); w.Fair {
		s.Way, s.Place = script.AtOwnPlace, w.Place
	} else if first {
		s.Way, s.Place = script.AtCrowdPlace, script.PlaceOf(a.Key, a.Crowd)
		s.Stays, s.Enqueue = stays, enqueue
	}
	return s
}

// keyLocked names the hold that a command of a session is about: the owner is one of the session's own if the command
// names none, a new one for a first acquire. A release or an extension is about the grant with its fence, the owner's
// hold, exclusive or shared, or else a permit, if that is all that is known here. A hold that was lost counts until a
// reply has said so: else the release of another hold would be the answer. Requires keeper.mu.
func (e *keeper) keyLocked(s *clientSession, cmd *grammar.Command) table.Key {
	k := table.Key{Lock: cmd.Key, Owner: cmd.Owner, Kind: exclusive{}}
	ends := cmd.Verb == grammar.Unlock || cmd.Verb == grammar.ExtendLock
	if cmd.Owner == "" {
		k.Owner = s.Name
		switch h, _ := s.Own(cmd.Key); {
		case ends && s.Each && h != nil && cmd.Fence == 0:
			return h.Key
		case ends && !s.Each && h != nil:
			k.Owner = h.Owner
		case ends:
		case s.Each || h == nil || cmd.Limit > 0 || !h.IsHeldBy(&s.Session):
			k.Owner = s.OwnerFor(e.nextName())
		case cmd.Shared || !h.Kind.Shares(): // it deepens the hold
			return h.Key
		default:
			k.Owner = h.Owner
		}
	}
	if !ends {
		k.Kind = askedKind(cmd)
		return k
	}
	if cmd.Fence != 0 {
		h := e.table.HoldByFence(k.Lock, cmd.Fence)
		if h != nil && (h.Owner == k.Owner || cmd.Owner == "" && s.Owns(h.Owner)) {
			return h.Key
		}
	}
	if h := e.table.Hold(k); h != nil {
		return h.Key
	}
	if s.LostFence(k) != 0 {
		return k
	}
	permit := k
	permit.Kind = limit{}
	if h := e.table.Meant(&s.Session, permit, 0); h != nil {
		return h.Key
	}
	if e.table.Hold(permit) != nil || s.LostFence(permit) != 0 {
		return permit
	}
	return k
}

// askedKind is the kind of lock that an acquire asks for.
func askedKind(cmd *grammar.Command) table.Kind {
	switch {
	case cmd.Shared:
		return shared{}
	case cmd.Limit > 0:
		return limit{}
	}
	return exclusive{}
}

// hasOtherType reports whether the key of a hold that no session here knows may have permits: Redis has refused a call of
// the other kinds. The command is sent again, for the type of the key.
func hasOtherType(k table.Key, err error) bool { return k.Kind != limit{} && isOverwritten(err) }

// kindOf is the kind of a hold, or of the hold that a command is about.
func kindOf(k table.Key) lockKind { return k.Kind.(lockKind) }

// asking is what the script of an attempt must know of the acquire.
type asking struct {
	script.Acquire
	FairWait time.Duration // the unit of deadlines in the queue in Redis
	Crowd    string        // the name of the place that the plain waiters share
}

// answerOf is the meaning of an attempt's outcome to the wait queue. lease is that of a grant.
func answerOf(a script.Acquired, lease time.Duration, err error) table.Answer {
	if err != nil {
		return callFailure(err)
	}
	if a.Deadlock {
		return table.Answer{Status: table.Refused, Err: errHoldsShared}
	}
	answer := table.Answer{
		TTL: a.PTTL, More: a.More, Form: a.Form, Placed: a.Placed, Place: table.Place(a.Place),
	}
	if a.Granted {
		answer.Status, answer.TTL = table.Held, lease
	}
	if a.Granted && a.PTTL > 0 { // that of another holder, which ends first
		answer.TTL = a.PTTL
	}
	return answer
}

func callFailure(err error) table.Answer {
	switch _, refused := asRefusal(err); {
	case isPostponed(err), isBusy(err): // a wait goes on
		return table.Answer{Status: table.Failed}
	case refused:
		return table.Answer{Status: table.Refused, Err: err}
	case errors.Is(err, contract.ErrInDoubt):
		return table.Answer{Status: table.InDoubt}
	default:
		return table.Answer{Status: table.Failed}
	}
}
