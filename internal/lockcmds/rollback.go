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
// keeps the holds that it has besides.
func (w *waiter) rollBackAcquire(fence int64, done func(ok bool)) {
	e, part := w.e, w.part()
	part.Request, part.Fence, part.Holds = e.nextRequest(), fence, 0
	r := rollback{limit: max(w.lease, e.opts.Lease), done: done}
	e.mu.Lock()
	if h := e.holds[holdKey{w.key, w.Owner}]; h != nil {
		if o := h.holderLocked(w.c); o != nil && (fence == 0 || fence == h.fence) {
			part.Holds = o.holds
		}
		r.Lease = max(0, h.lease.Deadline().Sub(e.clock.Now())) // the acquire may have made the lease shorter
	}
	e.mu.Unlock()
	r.Key, r.Part = w.key, part
	e.rollBack(r)
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
