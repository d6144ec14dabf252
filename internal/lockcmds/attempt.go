package lockcmds

import (
	"errors"
	"time"

	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
)

// attempt is one script call for a waiter, as a job.
func (e *Engine) attempt(w *waiter) {
	if f := e.opts.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := e.call(w)
	e.mu.Lock()
	deliver := e.answeredLocked(w, a, sentAt, answerOf(w, a, err))
	e.mu.Unlock()
	if deliver != nil {
		deliver()
	}
}

// answeredLocked tells the wait queue of the outcome of an attempt, or of a hand-over. It returns the function
// that tells the client of a grant. That function requires no locks. Requires e.mu.
func (e *Engine) answeredLocked(w *waiter, a script.Acquired, sentAt time.Time, answer queue.Answer) (deliver func()) {
	e.waits.stepLocked(func(q *queue.Set) { q.Answered(&w.Waiter, answer) })
	if answer.Status != queue.Held {
		return nil
	}
	return func() { e.deliver(w, grantOf(a, sentAt)) }
}

// call asks for the lock on the engine's own connection.
func (e *Engine) call(w *waiter) (a script.Acquired, sentAt time.Time, err error) {
	sentAt = e.clock.Now()
	q := e.question(w)
	a, err = runFor(e.life, e.own, q.Call, q.decode)
	e.note(w.key, a.Damage)
	return a, sentAt, err
}

// deliver tells the client. If it has gone, the lock goes back at once.
func (e *Engine) deliver(w *waiter, g grant) {
	ok := e.do(w.c.s, func() {
		if reply := e.granted(w, g); reply != nil {
			w.c.s.Reply(reply)
		}
	})
	if !ok {
		e.finish(w)
		e.rollBackAcquire(w, g.fence, nil)
	}
}

// goOn has an acquire ask again whose first attempt has come to nothing: as a waiter, or once if it may not wait any longer.
// Requires no locks.
func (e *Engine) goOn(w *waiter) {
	if w.wait == 0 || w.wait > 0 && e.clock.Now().Sub(w.began) >= w.wait {
		e.background(func() { e.tryOnce(w) })
		return
	}
	e.mu.Lock()
	e.unpauseLocked(w)
	e.mu.Unlock()
	ok := e.do(w.c.s, func() {
		if e.goHome(w) {
			return
		}
		w.mark = queue.Mark{}
		if reply := e.await(w, script.Acquired{}); reply != nil {
			w.c.s.Reply(reply)
		}
	})
	if !ok {
		e.turnAway(w, queue.Gone, nil)
	}
}

// tryOnce is the last attempt of an acquire that may not wait.
func (e *Engine) tryOnce(w *waiter) {
	e.mu.Lock()
	ended := w.c.ended
	e.mu.Unlock()
	if ended {
		e.turnAway(w, queue.Gone, nil)
		return
	}
	a, sentAt, err := e.call(w)
	switch {
	case err != nil:
		e.mu.Lock()
		w.SetDoubt(errors.Is(err, ErrInDoubt))
		e.mu.Unlock()
		e.turnAway(w, queue.Error, err)
	case a.Granted:
		e.deliver(w, grantOf(a, sentAt))
	default:
		e.mu.Lock()
		told := e.overtakenLocked(w)
		e.mu.Unlock()
		e.tell(told)
		e.turnAway(w, queue.Null, nil)
	}
}

// Unblock ends the wait of a session, as CLIENT UNBLOCK asks: as if its time were up, or with an error. It reports whether the
// session was waiting. Requires the session lock.
func (e *Engine) Unblock(session uint64, withError bool) (waited bool) {
	defer e.failStop()
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
func (e *Engine) turnAway(w *waiter, o queue.Outcome, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.finishLocked(w)
	e.waits.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, w.key, o, err) })
}

// refusedOne tells metrics.
func (e *Engine) refusedOne() {
	if f := e.opts.Events.Refused; f != nil {
		f()
	}
}
