package lockcmds

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Pause pauses the lease of a hold for a command that sets the lease to that length. It reports whether the command may
// be sent at once: Ordered waits for a renewal on its way, but only if that could give the lock a longer lease than the
// command. h is nil: there is no hold, and nothing to pause. Requires the session lock.
func (x *holds) Pause(h *sessionHold, lease time.Duration) (now bool) {
	if h == nil {
		return true
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return h.pauseLocked(lease)
}

// Lasts is how long a hold may last without a renewal; nil: 0. Requires no locks of this package.
func (x *holds) Lasts(h *table.Hold) time.Duration {
	if h == nil {
		return 0
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	return h.Most
}

// Ordered pauses the lease of a hold and runs send, with the session locked, when no renewal of the lease is on its
// way: at once, or later. If the session ends before that, it runs unsent instead, which has the lease renewed again.
// Requires the session lock.
func (x *holds) Ordered(s contract.Session, h *sessionHold, send, unsent func()) {
	x.mu.Lock()
	lease := h.lease
	x.mu.Unlock()
	ordered(x.Calls.Guard, s, lease, send, unsent)
}

func ordered(guard Guard, s contract.Session, l *watchdog.Lease, send, unsent func()) {
	const (
		asking  = iota
		free    // no renewal is on its way
		waiting // Pause has returned and send waits for the renewal
	)
	var state atomic.Int32
	l.Pause(func() {
		if state.CompareAndSwap(asking, free) {
			return // still in Pause, on this goroutine or another: the session is locked already
		}
		if !guard.Do(s, send) {
			unsent()
		}
	})
	if !state.CompareAndSwap(asking, waiting) {
		send()
	}
}
