package holds

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/failstop"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Pause pauses the lease of a hold for a command that sets the lease to that length. It reports whether the command may be sent at once:
// Ordered waits for a renewal on its way, but only if that could give the lock a longer lease than the command. h is nil: there is no hold,
// and nothing to pause. Requires the session lock.
func Pause(h *Hold, lease time.Duration) (now bool) {
	if h != nil && lease >= h.TTL {
		h.lease.Pause(nil)
	}
	return h == nil || lease >= h.TTL
}

// Ordered pauses the lease of a hold and runs send, with the session locked, when no renewal of the lease is on its way: at once, or later.
// If the session ends before that, the lease goes on as it was. Requires the session lock.
func (x *Holds) Ordered(s contract.Session, h *Hold, send func()) {
	ordered(x.Calls.Guard, s, h.lease, send)
}

func ordered(guard failstop.Guard, s contract.Session, l *watchdog.Lease, send func()) {
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
			l.Continue()
		}
	})
	if !state.CompareAndSwap(asking, waiting) {
		send()
	}
}
