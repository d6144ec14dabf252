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
// of a session (Start, Leave, Unblock, Ended), Drain, functions that a session runs, jobs, and the
// callbacks of the watchdog. Timers and the link to Redis need no guard: no panic is recovered there. The questions of
// status and sweeps (WaitsFor, OldestWait, List, Idle, those of survey.go) have none: they change nothing.

// FailStop guards the ways into one engine.
type FailStop struct{ Log *zap.Logger }

// Guard is deferred by every way into the engine that can change something.
func (s FailStop) Guard() {
	if r := recover(); r != nil {
		s.Crash(r)
	}
}

// Crash ends the process because of what a goroutine has panicked with.
func (s FailStop) Crash(r any) {
	s.Log.Fatal("BUG: panic in the lock engine: the process ends, and its leases run out",
		zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
}

// Do runs f with the session locked. It returns false, and does not run f, if the session has ended. Requires no locks.
func (s FailStop) Do(in contract.Session, f func()) bool {
	return in.Do(func() {
		defer s.Guard()
		f()
	})
}

// AfterUnlock has f run when the session is not locked any more. Requires the session lock.
func (s FailStop) AfterUnlock(of contract.Session, f func()) {
	of.AfterUnlock(func() {
		defer s.Guard()
		f()
	})
}
