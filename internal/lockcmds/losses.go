package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// reasonForced is the reason of a loss by FORCEUNLOCK. The watchdog has the other reasons.
const reasonForced watchdog.Reason = "forced"

// LossReasons lists the reasons that Options.OnLost is called with.
func LossReasons() []string {
	return []string{
		string(watchdog.ReasonGone), string(watchdog.ReasonDeadline), string(watchdog.ReasonExpired), string(watchdog.ReasonMaxHold), string(reasonForced),
	}
}

// Lost ends the hold of a lease that the watchdog has found lost. false: the hold has ended already. Requires no
// locks.
func (x *holds) Lost(l *watchdog.Lease, reason watchdog.Reason) bool {
	entry := l.Entry()
	x.mu.Lock()
	h := holdOf(x.ledger.Find(table.Key{Lock: entry.Key, Owner: entry.Owner}))
	if h == nil || h.lease != l {
		x.mu.Unlock()
		return false
	}
	var rest []rollback
	if reason != watchdog.ReasonGone {
		// Our clock, not Redis, says that the lease has ended. The sessions are told, so they cannot use what Redis may
		// have left of their holds.
		rest = x.staleLocked(h)
	}
	x.ledger.Lost(&h.Hold, string(reason), false, nil)
	told := x.settleLocked()
	x.mu.Unlock()
	for _, r := range rest {
		x.Calls.RollBack(r)
	}
	x.tell(told)
	return true
}

// staleLocked returns the rollbacks of a hold that the sessions here have lost. Each is tried for as long as Redis may
// have a part of the hold. Requires holds.mu.
func (x *holds) staleLocked(h *sessionHold) []rollback {
	all := make([]rollback, 0, len(h.Holders()))
	for _, o := range h.Holders() {
		r := x.rollback(h, o.Session)
		r.Limit, r.Less, r.Remember = max(h.Most, x.Lease), o.Holds, true
		all = append(all, r)
	}
	return all
}

// A look is a question to Redis whether a grant goes on.
type look uint8

const (
	noLook    look = iota
	looking        // the question is on its way
	lookAgain      // there was another reason to look meanwhile: Redis may have answered before it
)

// BeginLook returns the hold of a grant of which Redis is to be asked whether it goes on. false: no session here has
// it, or the question is on its way and will be asked again. So however often a client gives a reason to look, there is
// one question at a time for a grant. Requires no locks.
func (x *holds) BeginLook(lock string, fence int64) (k table.Key, ok bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := holdOf(x.ledger.Holder(lock))
	switch {
	case h == nil || h.Fence != fence:
		return k, false
	case h.look != noLook:
		h.look = lookAgain
		return k, false
	}
	h.look = looking
	return h.Key, true
}

// EndLook notes that Redis has answered BeginLook, and the hold goes on. It reports whether Redis is to be asked again.
// Requires no locks.
func (x *holds) EndLook(k table.Key, fence int64) (again bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := holdOf(x.ledger.Find(k))
	if h == nil || h.Fence != fence {
		return false
	}
	if again = h.look == lookAgain; again {
		h.look = looking
	} else {
		h.look = noLook
	}
	return again
}

// Forced ends the hold of a grant that FORCEUNLOCK has ended, if it is here. A holder here whose grant is still on its
// way learns it from its next renewal. Requires no locks.
func (x *holds) Forced(k table.Key, fence int64) {
	x.Step(func(l *table.Ledger) {
		if h := l.Find(k); h != nil && h.Fence == fence {
			l.Lost(h, string(reasonForced), true, nil)
		}
	})
}
