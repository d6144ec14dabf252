package lockcmds

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// lasts is how long a hold may last without a renewal; nil: 0. Requires no locks of this package.
func (e *keeper) lasts(h *table.Hold) time.Duration {
	if h == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return h.TTL
}

// pauseLocked pauses the lease of a hold for a command of a session that sets the lease to that length. It reports
// whether the command may be sent at once. Else a renewal is on its way that could give the lock a longer lease than the
// command: send runs behind that, with the session locked, or unsent if the session has ended, which has the lease
// renewed again. Requires the session lock and keeper.mu.
func (e *keeper) pauseLocked(s contract.Session, h *table.Hold, lease time.Duration, send, unsent func()) (now bool) {
	if lease >= h.TTL {
		h.Lease.Pause(nil)
		return true
	}
	return !h.Lease.Pause(func() {
		if !e.failstop.Do(s, send) {
			unsent()
		}
	})
}
