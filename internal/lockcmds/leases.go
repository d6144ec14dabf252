package lockcmds

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// lasts is how long a hold may last without a renewal; nil: 0. Requires no locks of this package.
func (e *Engine) lasts(h *table.Hold) time.Duration {
	if h == nil {
		return 0
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return h.TTL
}

// ordered pauses the lease of a hold and runs send, with the session locked, when no renewal of the lease is on its
// way: at once, or later. If the session ends before that, it runs unsent instead, which has the lease renewed again.
// Requires the session lock.
func (e *Engine) ordered(s contract.Session, h *table.Hold, send, unsent func()) {
	waits := h.Lease.Pause(func() {
		if !e.failstop.Do(s, send) {
			unsent()
		}
	})
	if !waits {
		send()
	}
}
