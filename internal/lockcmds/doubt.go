package lockcmds

import (
	"context"
	"fmt"
	"time"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
)

// doubtLimit is how long an outcome in doubt is looked into before the client is told that it is.
const doubtLimit = 5 * time.Second

// before is what its owner held before an attempt that is in doubt.
type before struct {
	fence, holds int64
	unclear      bool // releases are in doubt as well: an acquire and a release more make no difference
}

// doubt looks into a first attempt whose answer was lost with its connection. The session sends nothing meanwhile.
func (e *Engine) doubt(w *waiter) {
	e.mu.Lock()
	if h := w.paused; h != nil && e.holds[h.holdKey] == h {
		w.before = before{fence: h.fence, holds: h.count, unclear: h.doubts > 0 && h.doubts < h.count}
	}
	e.mu.Unlock()
	e.tending.Add(1) // until lookInto has come to an end
	e.jobs.Submit(jobs.Attempt, func() { e.lookInto(w, e.clock.Now().Add(doubtLimit), retryFirst) })
}

// lookInto asks Redis who the owner is, as often as it takes until limit, and answers accordingly.
func (e *Engine) lookInto(w *waiter, limit time.Time, pause time.Duration) {
	ctx, cancel := context.WithDeadline(e.life, limit)
	asked := e.clock.Now()
	a, err := e.ask(ctx, w)
	cancel()
	if err != nil && e.life.Err() == nil && e.clock.Now().Add(pause).Before(limit) && !isRefusal(err) {
		e.jobs.After(pause, jobs.Attempt, func() { e.lookInto(w, limit, min(2*pause, retryLast)) })
		return
	}
	defer e.tending.Add(-1)
	switch {
	case err != nil:
		e.turnAway(w, queue.Error, ErrInDoubt)
	case a.Granted:
		e.deliver(w, grant{fence: a.Fence, count: a.Holds, sentAt: asked})
	default:
		e.goOn(w)
	}
}

// ask finds out whether an attempt whose answer was lost has acquired the lock: {1, fence, holds} or {0}. If it has,
// the lease starts anew, because nobody knows how much of it is left. The error wraps ErrInDoubt if Redis cannot tell.
func (e *Engine) ask(ctx context.Context, w *waiter) (script.Acquired, error) {
	if w.Shared {
		return e.askExplicit(ctx, w)
	}
	lease := w.lease
	e.mu.Lock()
	if h := w.paused; h != nil && e.holds[h.holdKey] == h {
		lease = max(lease, h.lease.Deadline().Sub(e.clock.Now())) // if the attempt came to nothing, that is what the holder relies on
	}
	e.mu.Unlock()
	a, err := runFor(ctx, e.own, script.Extend{Key: w.key, Owner: w.Owner, Lease: lease}.Call(), script.DecodeExtended)
	switch {
	case isRefusal(err):
		return script.Acquired{}, fmt.Errorf("look into an acquire: %w: %w", ErrInDoubt, err)
	case err != nil:
		return script.Acquired{}, fmt.Errorf("look into an acquire: %w", ErrInDoubt)
	case !a.Held:
		return script.Acquired{}, nil
	case a.Fence != w.before.fence || a.Holds > w.before.holds:
		return script.Acquired{Granted: true, Fence: a.Fence, Holds: a.Holds}, nil
	case w.before.unclear:
		return script.Acquired{}, fmt.Errorf("look into an acquire behind a release: %w", ErrInDoubt)
	}
	return script.Acquired{}, nil
}

// askExplicit looks for an owner that may hold the lock by another session, here or elsewhere. If it does, nobody can
// say whether this acquire is part of it.
func (e *Engine) askExplicit(ctx context.Context, w *waiter) (script.Acquired, error) {
	a, err := runFor(ctx, e.own, script.Info{Key: w.key}.Call(), script.DecodeHolder)
	if err != nil || a.Held && a.Owner == w.Owner {
		return script.Acquired{}, fmt.Errorf("look into an acquire: %w", ErrInDoubt)
	}
	return script.Acquired{}, nil
}

func isRefusal(err error) bool {
	_, ok := asRefusal(err)
	return ok
}
