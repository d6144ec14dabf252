package lockcmds

import (
	"runtime/debug"

	"go.uber.org/zap"
)

// The engine is fail-stop: a panic in it ends the process and thereby all renewals, so its locks end with their leases. Going on would
// be worse. The panic may have left Engine.mu locked, or half of a change behind. Then clients would hang or get wrong answers, while the
// leases of ended sessions were renewed for ever.
//
// Every way into the engine is guarded, because sessions and pools recover from panics: what a session calls (Start, StartFor, Keeps,
// Leave, Unblock, Ended), Drain, functions that a session runs (script, do, afterUnlock), jobs, and the callbacks of the watchdog. Timers
// and the link to Redis need no guard: no panic is recovered there.

// failStop is deferred by every way into the engine.
func (e *Engine) failStop() {
	if r := recover(); r != nil {
		e.crash(r)
	}
}

// crash ends the process.
func (e *Engine) crash(r any) {
	e.log.Fatal("BUG: panic in the lock engine: the process ends, and its leases run out",
		zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
}

// do runs f with the session locked. It returns false, and does not run f, if the session has ended.
func (e *Engine) do(s Session, f func()) bool {
	return s.Do(func() {
		defer e.failStop()
		f()
	})
}

// afterUnlock has f run when the session is not locked any more. Requires the session lock.
func (e *Engine) afterUnlock(s Session, f func()) {
	s.AfterUnlock(func() {
		defer e.failStop()
		f()
	})
}
