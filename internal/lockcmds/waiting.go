package lockcmds

import (
	"errors"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
)

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if it must not wait, else nil.
// Requires the session lock.
func (w *waiter) await(a script.Acquired) []byte {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	refusal := w.e.waits.set.Denied(w.key)
	full, limit := w.e.waits.full(w.key)
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
		return w.replyTo(queue.Error, refusal)(w.c.proto)
	}
	w.refused(limit)
	return replies.Overloaded(full)
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
	w.e.calls.Background(jobs.Attempt, func() { w.without(f) })
}

// without answers an acquire that has left its wait queue and has not got the lock. If an attempt was not answered, the lock may have been
// granted: then that is rolled back first, because a null says that the client does not hold the lock. Requires no locks.
func (w *waiter) without(f queue.Effect) {
	switch {
	case f.Outcome == queue.Gone:
		w.rollBackAcquire(0, nil)
	case f.Doubt:
		w.rollBackAcquire(0, w.e.calls.OnceWithin(calls.DoubtLimit, func(ok bool) {
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

// refused tells metrics and the log that the client may not wait.
func (w *waiter) refused(limit string) {
	if f := w.e.opts.Events.Refused; f != nil {
		f(limit, w.c.client.Addr)
	}
}

// rollBackAcquire undoes what copies of an acquire have done, or may still do. fence is of the grant; 0: it is not known. The session
// keeps the holds that it has besides.
func (w *waiter) rollBackAcquire(fence int64, done func(ok bool)) {
	e, part := w.e, w.part()
	part.Request, part.Fence, part.Holds = e.nextRequest(), fence, 0
	r := calls.Rollback{Limit: max(w.lease, e.opts.Lease), Done: done}
	e.mu.Lock()
	if h := holdOf(e.ledger.Find(w.hold())); h != nil {
		if o := h.HolderOf(&w.c.Session); o != nil && (fence == 0 || fence == h.Fence) {
			part.Holds = o.Holds
		}
		r.Lease = max(0, h.lease.Deadline().Sub(e.clock.Now())) // the acquire may have made the lease shorter
	}
	e.mu.Unlock()
	r.Key, r.Part = w.key, part
	e.calls.RollBack(r)
}

var (
	errDraining  = errors.New("draining")
	errUnblocked = script.Error("UNBLOCKED client unblocked via CLIENT UNBLOCK")
)
