package lockcmds

import (
	"context"
	"time"

	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/watchdog"
)

// grantOf names a grant of a lock to an owner.
type grantOf struct {
	holdKey
	fence int64
}

// giveBack releases holds that no client was told of, or that it gave back while it hung up. It does not block. again says that
// nobody relies on that grant any more, so a release may be repeated that may have been done.
func (e *Engine) giveBack(g grantOf, holds int64, again bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.giveBackLocked(g, holds, again, e.opts.Lease)
}

// giveBackLocked is giveBack, tried for as long as limit.
func (e *Engine) giveBackLocked(g grantOf, holds int64, again bool, limit time.Duration) {
	r := e.returning[g.holdKey]
	if r == nil {
		r = &returns{}
		e.returning[g.holdKey] = r
	}
	r.n++
	e.owed[g] += holds
	late := e.clock.AfterFunc(e.opts.deferLimit, func() { e.startDeferred(g.holdKey, r) })
	e.persist(cleanup{
		what: "give a lock back", key: g.key, limit: limit,
		once: !again, // done twice it would take off what the owner holds by others
		task: func(ctx context.Context) error { return e.takeOff(ctx, g, holds) },
		done: func(ok bool) {
			late.Stop()
			e.mu.Lock()
			if e.owed[g] -= holds; e.owed[g] == 0 {
				delete(e.owed, g)
			}
			e.mu.Unlock()
			e.returned(g.holdKey, r, ok)
		},
	})
}

// refuseLateLocked answers an acquire whose grant came too late to be used, when it has been given back: null says that nothing of
// it is left, also to who goes on for the same owner at another proxy.
func (e *Engine) refuseLateLocked(w *waiter, g grant) {
	e.giveBackLocked(w.grantOf(g), 1, false, e.opts.Lease)
	r := e.returning[holdKey{w.key, w.Owner}]
	e.deferLocked(r, w.c.s, func() {
		e.mu.Lock()
		clean := r.n == 0 && !r.failed
		e.mu.Unlock()
		if clean {
			w.c.s.Reply(null(w.caller.Proto))
		} else {
			w.c.s.Reply(appendFailure(nil, ErrInDoubt))
		}
	}, nil)
}

// defaultDeferLimit is how long commands wait for a give-back. While Redis does not answer they are not to wait for longer than
// they would without: then what is being given back may come before them or after.
const defaultDeferLimit = time.Second

// returns is the give-backs of one owner's holds that are on their way, and the commands that wait for them. They travel on the
// engine's own connection: a command that the session sends now might come first, or second, and its answer would not say which.
// Its fields are guarded by Engine.mu.
type returns struct {
	n      int
	failed bool // nobody knows whether one of them was done
	queue  []func()
}

// deferLocked puts a command off until the give-backs have ended. start runs with the session locked; if the session has ended,
// gone runs instead, without locks; nil: nothing does.
func (e *Engine) deferLocked(r *returns, s Session, start, gone func()) {
	r.queue = append(r.queue, func() {
		if !e.do(s, start) && gone != nil {
			gone()
		}
	})
}

// returned ends one give-back; with the last of them nobody waits any more.
func (e *Engine) returned(k holdKey, r *returns, ok bool) {
	e.mu.Lock()
	r.n--
	r.failed = r.failed || !ok
	var queue []func()
	if r.n == 0 {
		queue = e.takeDeferredLocked(k, r)
	}
	e.mu.Unlock()
	run(queue)
}

// startDeferred has nobody wait for these give-backs any more.
func (e *Engine) startDeferred(k holdKey, r *returns) {
	e.mu.Lock()
	queue := e.takeDeferredLocked(k, r)
	e.mu.Unlock()
	run(queue)
}

func (e *Engine) takeDeferredLocked(k holdKey, r *returns) []func() {
	if e.returning[k] == r {
		delete(e.returning, k)
	}
	queue := r.queue
	r.queue = nil
	return queue
}

func run(tasks []func()) {
	for _, task := range tasks {
		task()
	}
}

// takeOff gives back so many holds of a grant, fence 0: of any. What a session here still holds of it keeps the lease that it relies
// on: the acquire that is given back may have set a shorter one.
func (e *Engine) takeOff(ctx context.Context, g grantOf, holds int64) error {
	e.mu.Lock()
	lease := time.Duration(0)
	if h := e.holds[g.holdKey]; h != nil && h.fence == g.fence {
		lease = max(0, h.lease.Deadline().Sub(e.clock.Now()))
	}
	e.mu.Unlock()
	held, err := runFor(ctx, e.own,
		script.Grace{Key: g.key, Owner: g.owner, Fence: g.fence, Holds: holds, Lease: lease}.Call(), script.DecodeGrace)
	if err != nil || held || g.fence == 0 {
		return err
	}
	e.mu.Lock()
	var told *loss
	if h := e.holds[g.holdKey]; h != nil && h.fence == g.fence {
		told = e.loseLocked(h, watchdog.ReasonGone, nil)
	}
	e.mu.Unlock()
	e.tell(told)
	return nil
}
