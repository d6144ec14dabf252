package lockcmds

import (
	"runtime/debug"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
)

// This file ends the process at a panic in the lock engine. All renewals end with it, so its locks end with their
// leases. Going on would be worse. The panic may have left a mutex locked, or half of a change behind. Then clients
// would hang or get wrong answers, while the leases of ended sessions were renewed for ever.
//
// Every way into the engine that can change something is guarded, because sessions and pools recover from panics: calls
// of a session (Start, StartFor, Keeps, Leave, Unblock, Ended), Drain, functions that a session runs, jobs, and the
// callbacks of the watchdog. Timers and the link to Redis need no guard: no panic is recovered there. The questions of
// status and sweeps (WaitsFor, EachHold, EachContended, OldestWait, Held, Idle) have none: they change nothing.

// Guard guards the ways into one engine.
type Guard struct{ Log *zap.Logger }

// Stop is deferred by every way into the engine that can change something.
func (g Guard) Stop() {
	if r := recover(); r != nil {
		g.Crash(r)
	}
}

// Crash ends the process because of what a goroutine has panicked with.
func (g Guard) Crash(r any) {
	g.Log.Fatal("BUG: panic in the lock engine: the process ends, and its leases run out",
		zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
}

// Do runs f with the session locked. It returns false, and does not run f, if the session has ended. Requires no locks.
func (g Guard) Do(s contract.Session, f func()) bool {
	return s.Do(func() {
		defer g.Stop()
		f()
	})
}

// AfterUnlock has f run when the session is not locked any more. Requires the session lock.
func (g Guard) AfterUnlock(s contract.Session, f func()) {
	s.AfterUnlock(func() {
		defer g.Stop()
		f()
	})
}
