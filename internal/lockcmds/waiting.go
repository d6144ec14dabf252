package lockcmds

import (
	"errors"

	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if it must not wait, else nil.
// Requires the session lock.
func (w *waiter) await(a script.Acquired) []byte {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	refusal, full := w.e.waits.set.Denied(w.key), w.e.fullLocked(w.key)
	switch {
	case w.c.ended, refusal != nil, full != "":
		w.finishLocked()
		w.e.waits.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, w.key, queue.Gone, nil) })
	default:
		w.e.waits.stepLocked(func(q *queue.Set) { q.Join(&w.Waiter, w.e.waits.namesOf(w.key), w.mark, answerOf(w, a, nil)) })
		if w.wait > 0 {
			left := w.began.Add(w.wait).Sub(w.e.clock.Now())
			w.timer = w.e.clock.AfterFunc(left, func() { w.e.waits.step(func(q *queue.Set) { q.TimedOut(&w.Waiter) }) })
		}
		return nil
	}
	switch {
	case w.c.ended:
		return nil
	case refusal != nil:
		return w.e.replyTo(queue.Error, refusal)(w.caller.Proto)
	}
	w.e.refusedOne()
	return resp.AppendError(nil, resp.Overloaded, full)
}

// fullLocked says why no further client may wait for this lock now; empty: one may.
func (e *Engine) fullLocked(key string) string {
	switch {
	case e.draining:
		return "draining"
	case e.opts.MaxWaiters > 0 && e.opts.Waiting.Load() >= int64(e.opts.MaxWaiters):
		return "too many waiters"
	case e.opts.MaxWaitersPerLock > 0 && int(e.waits.lenLocked(key)) >= e.opts.MaxWaitersPerLock:
		return "too many waiters for this lock"
	}
	return ""
}

// leftLocked ends an acquire that has left its wait queue. One that was granted the lock goes on: its attempt delivers the grant.
// Requires e.mu.
func (w *waiter) leftLocked(f queue.Effect) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if f.Outcome == queue.Granted {
		return
	}
	w.finishLocked()
	if f.Outcome == queue.Gone && !f.Doubt {
		return
	}
	w.e.background(func() { w.without(f) })
}

// without answers an acquire that has left its wait queue and has not got the lock. If an attempt was not answered, the lock may have been
// granted: then that is rolled back first, because a null says that the client does not hold the lock. Requires no locks.
func (w *waiter) without(f queue.Effect) {
	switch {
	case f.Outcome == queue.Gone:
		w.rollBackAcquire(0, nil)
	case f.Doubt:
		w.rollBackAcquire(0, w.e.onceWithin(doubtLimit, func(ok bool) {
			if ok {
				w.reply(w.e.replyTo(f.Outcome, f.Err))
			} else {
				w.reply(failed(ErrInDoubt))
			}
		}))
	default:
		w.reply(w.e.replyTo(f.Outcome, f.Err))
	}
}

// replyTo is the reply to an acquire that has to go without the lock.
func (e *Engine) replyTo(o queue.Outcome, err error) func(proto int) []byte {
	switch {
	case errors.Is(err, errDraining):
		e.refusedOne()
		return func(int) []byte { return resp.AppendError(nil, resp.Overloaded, errDraining.Error()) }
	case o == queue.Error:
		return failed(err)
	}
	return null
}

var (
	errDraining  = errors.New("draining")
	errUnblocked = script.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
)
