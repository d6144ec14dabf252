package lockcmds

import (
	"context"
	"sync"
	"time"

	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/watchdog"
)

// rollback ends a session's part in a grant that no client relies on: the client was not told of it, was told that it is lost, or
// has gone. No command waits for it: a later call of the session has a larger number, and then the rollback changes nothing.
type rollback struct {
	script.Drop
	by    redislink.Node  // nil: the engine's own
	after *watchdog.Lease // whose renewal on its way is waited for, because it could make the lease longer again; nil: none
	limit time.Duration   // of trying: by then the lease has run out
	done  func(ok bool)   // the end; requires no locks. nil: not of interest
}

// rollBack sends a rollback until Redis answers. It does not block.
func (e *Engine) rollBack(r rollback) {
	if lease := r.after; lease != nil {
		r.after = nil
		lease.Pause(func() { e.rollBack(r) })
		return
	}
	e.retry(cleanup{
		what: "roll a hold back", key: r.Key, limit: r.limit, done: r.done,
		task: func(ctx context.Context) error {
			by := r.by
			if by == nil {
				by = e.own.Node(r.Key)
			}
			v, err := e.runAs(ctx, by, r.Call())
			_, err = decoded(v, err, script.DecodeDropped)
			return err
		},
	})
}

// rollBackAcquire undoes what copies of an acquire have done, or may still do. fence is of the grant; 0: it is not known. The session
// keeps the holds that it had before.
func (w *waiter) rollBackAcquire(fence int64, done func(ok bool)) {
	part := w.part()
	part.Request, part.Fence = w.e.nextRequest(), fence
	if part.Holds--; fence != 0 && fence != w.fence {
		part.Holds = 0
	}
	w.e.rollBack(rollback{
		Drop: script.Drop{Key: w.key, Part: part, Lease: w.leaseLeft()}, limit: max(w.lease, w.e.opts.Lease), done: done,
	})
}

// leaseLeft is what sessions of this engine rely on of the lease that the acquire may have made shorter.
func (w *waiter) leaseLeft() time.Duration {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	h := w.e.holds[holdKey{w.key, w.Owner}]
	if h == nil {
		return 0
	}
	return max(0, h.lease.Deadline().Sub(w.e.clock.Now()))
}

// onceWithin returns a function that runs f once: with what it is called with, or with false when the time is over.
func (e *Engine) onceWithin(limit time.Duration, f func(ok bool)) func(ok bool) {
	var once sync.Once
	run := func(ok bool) { once.Do(func() { f(ok) }) }
	late := e.clock.AfterFunc(limit, func() { run(false) })
	return func(ok bool) {
		late.Stop()
		run(ok)
	}
}

func run(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}
