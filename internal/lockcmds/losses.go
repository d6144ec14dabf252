package lockcmds

import (
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// reasonForced is the reason of a loss by FORCEUNLOCK. The watchdog has the other reasons.
const reasonForced watchdog.Reason = "forced"

// LossReasons lists the reasons that Events.Lost is called with.
func LossReasons() []string {
	return []string{
		string(watchdog.ReasonGone), string(watchdog.ReasonDeadline), string(watchdog.ReasonExpired), string(watchdog.ReasonMaxHold), string(reasonForced),
	}
}

// onLost is the watchdog's verdict about a lease: its hold ends, and then waiters ask. It is called at most once per
// lease. Requires no locks.
func (e *Engine) onLost(l *watchdog.Lease, reason watchdog.Reason) {
	defer e.guard.Stop()
	var rest []rollback
	e.step(func(t *table.Table) {
		h := l.Of().(*watchedHold)
		if !t.Knows(&h.Hold) || h.lease != l {
			return // the hold has ended already
		}
		if reason != watchdog.ReasonGone {
			// Our clock, not Redis, says that the lease has ended. The sessions are told, so they cannot use what Redis
			// may have left of their holds.
			rest = e.staleLocked(h)
		}
		t.Lost(&h.Hold, string(reason), false, nil)
		t.Wake(h.Lock)
	})
	for _, r := range rest {
		e.calls.RollBack(r)
	}
}

// staleLocked returns the rollbacks of a hold that the sessions here have lost. Each is tried for as long as Redis may
// have a part of the hold. Requires Engine.mu.
func (e *Engine) staleLocked(h *watchedHold) []rollback {
	all := make([]rollback, 0, len(h.Holders()))
	for _, o := range h.Holders() {
		r := e.rollback(h, o.Session)
		r.Limit, r.Less, r.Remember = max(h.Most, e.opts.Lease), o.Holds, true
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

// beginLook returns the hold of a grant of which Redis is to be asked whether it goes on. false: no session here has
// it, or the question is on its way and will be asked again. So however often a client gives a reason to look, there is
// one question at a time for a grant. Requires no locks.
func (e *Engine) beginLook(lock string, fence int64) (k table.Key, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := holdOf(e.table.HoldByFence(lock, fence))
	switch {
	case h == nil:
		return k, false
	case h.look != noLook:
		h.look = lookAgain
		return k, false
	}
	h.look = looking
	return h.Key, true
}

// endLook notes that Redis has answered beginLook, and the hold goes on. It reports whether Redis is to be asked again.
// Requires no locks.
func (e *Engine) endLook(k table.Key, fence int64) (again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	h := holdOf(e.table.Hold(k))
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

// Forced says that a grant was ended by force: a holder of this engine is told, and waiters ask. Its end by its handle is
// no loss. A holder here whose grant is still on its way learns it from its next renewal. Requires no locks of this
// package.
func (e *Engine) Forced(key string, ended script.Forced) {
	defer e.guard.Stop()
	e.step(func(t *table.Table) {
		h := t.HoldByFence(key, ended.Fence)
		switch {
		case h == nil || h.Owner != ended.Owner:
		case ended.Handle:
			t.Drop(h)
		default:
			t.Lost(h, string(reasonForced), true, nil)
		}
		t.Wake(key)
	})
}
