package waiters

import (
	"errors"

	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/replies"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if the acquire must not wait, else nil.
// Requires the session lock.
func (w *waiter) await(a script.Acquired) []byte {
	x, key := w.x, w.lock()
	x.mu.Lock()
	defer x.mu.Unlock()
	refusal := x.set.Denied(key)
	full, limit := x.fullLocked(key)
	switch {
	case w.ended, refusal != nil, full != "":
		w.finishLocked()
		x.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, key, queue.Gone, nil) })
	default:
		x.stepLocked(func(q *queue.Set) { q.Join(&w.Waiter, x.namesOf(key), w.mark, answerOf(w, a, nil)) })
		if w.wait > 0 {
			left := w.began.Add(w.wait).Sub(x.Calls.Clock.Now())
			w.timer = x.Calls.Clock.AfterFunc(left, func() { x.Step(func(q *queue.Set) { q.TimedOut(&w.Waiter) }) })
		}
		return nil
	}
	switch {
	case w.ended:
		return nil
	case refusal != nil:
		return w.replyTo(queue.Error, refusal)(w.session().Proto)
	}
	w.refused(limit)
	return replies.Overloaded(full)
}

// leftLocked ends an acquire that has left its wait queue. A granted one goes on: its attempt delivers the grant. Requires Waiters.mu.
func (w *waiter) leftLocked(f queue.Effect) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if left := w.x.Events.Left; left != nil {
		left(f.Outcome, w.x.Calls.Clock.Now().Sub(w.began))
	}
	if f.Outcome == queue.Granted {
		return
	}
	w.finishLocked()
	if f.Outcome == queue.Gone && !f.Doubt {
		return
	}
	w.x.Calls.Background(jobs.Attempt, func() { w.without(f) })
}

// without answers an acquire that has left its wait queue and has not got the lock. If an attempt was not answered, the lock may have been
// granted: then that is rolled back first, because a null says that the client does not hold the lock. Requires no locks.
func (w *waiter) without(f queue.Effect) {
	switch {
	case f.Outcome == queue.Gone:
		w.rollBack(0, nil)
	case f.Doubt:
		w.rollBack(0, w.x.Calls.OnceWithin(calls.DoubtLimit, func(ok bool) {
			if ok {
				w.reply(w.replyTo(f.Outcome, f.Err))
			} else {
				w.reply(replies.Failed(contract.ErrInDoubt))
			}
		}))
	default:
		w.reply(w.replyTo(f.Outcome, f.Err))
	}
}

// withdraw ends an acquire that is in no wait queue, with that outcome. The reply comes when its place has left the queue in Redis: a client
// that asks again at once must not be taken out by the clean-up of its earlier wait. Requires no locks.
func (w *waiter) withdraw(o queue.Outcome, err error) {
	w.claim.Continue()
	w.x.mu.Lock()
	defer w.x.mu.Unlock()
	w.finishLocked()
	w.x.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, w.lock(), o, err) })
}

// replyTo is the reply to an acquire that has to go without the lock.
func (w *waiter) replyTo(o queue.Outcome, err error) func(proto int) []byte {
	switch {
	case errors.Is(err, errDraining):
		w.refused("")
		return func(int) []byte { return replies.Overloaded(errDraining.Error()) }
	case o == queue.Error:
		return replies.Failed(err)
	}
	return replies.Null
}

// refused tells metrics and the log that the client may not wait. limit is the setting that is the reason; empty: the proxy stops.
func (w *waiter) refused(limit string) {
	if f := w.x.Events.Refused; f != nil {
		f(limit, w.session().Client.Addr)
	}
}
