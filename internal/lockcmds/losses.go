package lockcmds

import (
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
