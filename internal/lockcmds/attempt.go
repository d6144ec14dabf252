package lockcmds

import (
	"errors"
	"time"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
)

// attempt is one script call for a waiter, as a job.
func (w *waiter) attempt() {
	if f := w.e.opts.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := w.call()
	w.e.mu.Lock()
	deliver := w.answeredLocked(a, sentAt, answerOf(w, a, err))
	w.e.mu.Unlock()
	if deliver != nil {
		deliver()
	}
}

// answeredLocked tells the wait queue of the outcome of an attempt, or of a hand-over. It returns the function
// that tells the client of a grant. That function requires no locks. Requires e.mu.
func (w *waiter) answeredLocked(a script.Acquired, sentAt time.Time, answer queue.Answer) (deliver func()) {
	w.c.Doubted = w.c.Doubted || answer.Status == queue.InDoubt
	w.e.waits.stepLocked(func(q *queue.Set) { q.Answered(&w.Waiter, answer) })
	if answer.Status != queue.Held {
		return nil
	}
	return func() { w.deliver(grantOf(a, sentAt)) }
}

// call asks for the lock on the engine's own connection.
func (w *waiter) call() (a script.Acquired, sentAt time.Time, err error) {
	sentAt = w.e.clock.Now()
	q := w.question()
	a, err = calls.RunFor(w.e.life, w.e.own, q.Call, q.decode)
	w.e.damage.Note(w.key, a.Damage)
	return a, sentAt, err
}

// deliver tells the client. If it has gone, the lock goes back at once.
func (w *waiter) deliver(g grant) {
	ok := w.e.guard.Do(w.c.s, func() {
		if reply := w.granted(g); reply != nil {
			w.c.s.Reply(reply)
		}
	})
	if !ok {
		w.finish()
		w.rollBackAcquire(g.fence, nil)
	}
}

// goOn has an acquire ask again whose first attempt has come to nothing: as a waiter, or once if it may not wait any longer.
// Requires no locks.
func (w *waiter) goOn() {
	if w.wait == 0 || w.wait > 0 && w.e.clock.Now().Sub(w.began) >= w.wait {
		w.e.calls.Background(jobs.Attempt, w.tryOnce)
		return
	}
	w.e.mu.Lock()
	w.unpauseLocked()
	w.e.mu.Unlock()
	ok := w.e.guard.Do(w.c.s, func() {
		if w.goHome() {
			return
		}
		w.mark = queue.Mark{}
		if reply := w.await(script.Acquired{}); reply != nil {
			w.c.s.Reply(reply)
		}
	})
	if !ok {
		w.turnAway(queue.Gone, nil)
	}
}

// tryOnce is the last attempt of an acquire that may not wait.
func (w *waiter) tryOnce() {
	w.e.mu.Lock()
	ended := w.c.ended
	w.e.mu.Unlock()
	if ended {
		w.turnAway(queue.Gone, nil)
		return
	}
	a, sentAt, err := w.call()
	switch {
	case err != nil:
		w.e.mu.Lock()
		w.SetDoubt(errors.Is(err, contract.ErrInDoubt))
		w.c.Doubted = w.c.Doubted || errors.Is(err, contract.ErrInDoubt)
		w.e.mu.Unlock()
		w.turnAway(queue.Error, err)
	case a.Granted:
		w.deliver(grantOf(a, sentAt))
	default:
		w.e.mu.Lock()
		told := w.overtakenLocked()
		w.e.mu.Unlock()
		w.e.tell(told)
		w.turnAway(queue.Null, nil)
	}
}

// Unblock ends the wait of a session, as CLIENT UNBLOCK asks: as if its time were up, or with an error. It reports whether the
// session was waiting. Requires the session lock.
func (e *Engine) Unblock(session uint64, withError bool) (waited bool) {
	defer e.guard.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clients[session]
	if c == nil || c.ask == nil {
		return false
	}
	e.waits.stepLocked(func(q *queue.Set) {
		if withError {
			waited = q.Remove(&c.ask.Waiter, queue.Error, errUnblocked)
		} else {
			waited = q.Remove(&c.ask.Waiter, queue.Null, nil)
		}
	})
	return waited
}

// turnAway ends an acquire that is in no wait queue, with that outcome. The reply comes when its place has left the queue in Redis: a client
// that asks again at once must not be taken out by the clean-up of its earlier wait. Requires no locks.
func (w *waiter) turnAway(o queue.Outcome, err error) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.finishLocked()
	w.e.waits.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, w.key, o, err) })
}
