package waiters

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/calls"
	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
)

// attempt is one script call for a waiter, as a job.
func (w *waiter) attempt() {
	if f := w.x.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := w.call()
	w.x.mu.Lock()
	deliver := w.answeredLocked(a, sentAt, answerOf(w, a, err))
	w.x.mu.Unlock()
	if deliver != nil {
		deliver()
	}
}

// answeredLocked tells the wait queue of the outcome of an attempt, or of a hand-over. It returns the function
// that tells the client of a grant. That function requires no locks. Requires Waiters.mu.
func (w *waiter) answeredLocked(a script.Acquired, sentAt time.Time, answer queue.Answer) (deliver func()) {
	w.x.stepLocked(func(q *queue.Set) { q.Answered(&w.Waiter, answer) })
	if answer.Status != queue.Held {
		return nil
	}
	return func() { w.deliver(grantOf(a, sentAt)) }
}

// answerOf is the meaning of an attempt's outcome to the wait queue.
func answerOf(w *waiter, a script.Acquired, err error) queue.Answer {
	switch _, refused := calls.AsRefusal(err); {
	case calls.IsPostponed(err):
		return queue.Answer{Status: queue.Unsent}
	case refused:
		return queue.Answer{Status: queue.Refused, Err: err}
	case errors.Is(err, contract.ErrInDoubt):
		return queue.Answer{Status: queue.InDoubt}
	case err != nil:
		return queue.Answer{Status: queue.Unsent}
	case a.Granted:
		return queue.Answer{Status: queue.Held, TTL: w.lease, Placed: a.Placed, Place: turns.Place(a.Place)}
	}
	return queue.Answer{TTL: a.PTTL, Placed: a.Placed, Place: turns.Place(a.Place)}
}

// call asks for the lock on the engine's own connection.
func (w *waiter) call() (a script.Acquired, sentAt time.Time, err error) {
	c := w.x.Calls
	sentAt = c.Clock.Now()
	q := w.question()
	a, err = calls.RunFor(c.Life, c.Own, q.Call, q.decode)
	if errors.Is(err, contract.ErrInDoubt) {
		w.claim.Doubt(w.lease, sentAt)
	}
	w.x.Damage.Note(w.lock(), a.Damage)
	return a, sentAt, err
}

// deliver tells the client of a grant. If the client has gone, the grant is rolled back at once.
func (w *waiter) deliver(g grant) {
	ok := w.x.Calls.Guard.Do(w.conn(), func() {
		if reply := w.granted(g); reply != nil {
			w.conn().Reply(reply)
		}
	})
	if !ok {
		w.hungUp(g.fence)
	}
}

// mayWait reports whether the client has time left to wait.
func (w *waiter) mayWait() bool {
	return w.wait < 0 || w.wait > 0 && w.x.Calls.Clock.Now().Sub(w.began) < w.wait
}

// goOn has an acquire ask again whose first attempt has come to nothing: as a waiter, or once if it may not wait any longer.
// Requires no locks.
func (w *waiter) goOn() {
	if !w.mayWait() {
		w.x.Calls.Background(jobs.Attempt, w.tryOnce)
		return
	}
	ok := w.x.Calls.Guard.Do(w.conn(), func() {
		if w.goHome() {
			return
		}
		w.mark = queue.Mark{}
		if reply := w.await(script.Acquired{}); reply != nil {
			w.conn().Reply(reply)
		}
	})
	if !ok {
		w.withdraw(queue.Gone, nil)
	}
}

// tryOnce is the last attempt of an acquire that may not wait any longer. If its answer is lost, it is sent again like a call of a session.
func (w *waiter) tryOnce() {
	w.x.mu.Lock()
	ended := w.ended
	w.x.mu.Unlock()
	if ended {
		w.withdraw(queue.Gone, nil)
		return
	}
	a, sentAt, err := w.call()
	switch {
	case errors.Is(err, contract.ErrInDoubt):
		w.x.Calls.Repeat(&calls.Request{Session: w.conn(), For: lastAttempt{w}}, w.question().Call)
	case err != nil:
		w.withdraw(queue.Error, err)
	case a.Granted:
		w.deliver(grantOf(a, sentAt))
	default:
		w.claim.Overtaken()
		w.withdraw(queue.Null, nil)
	}
}

// lastAttempt is a waiter whose last attempt is sent again. It may have a place in the queue from an earlier attempt, so it is withdrawn if
// it gets no grant.
type lastAttempt struct{ *waiter }

// Postponed implements calls.Asker.
func (lastAttempt) Postponed() (script.Call, time.Duration) { return script.Call{}, 0 }

// Answered implements calls.Asker.
func (l lastAttempt) Answered(o calls.Outcome) []byte {
	w := l.waiter
	a, err := calls.Decoded(o.Reply, o.Err, script.DecodeAcquired)
	w.x.Damage.Note(w.lock(), a.Damage)
	switch {
	case err == nil && a.Granted:
		return w.granted(grantOf(a, o.SentAt))
	case err == nil:
		w.claim.Overtaken()
		w.withdraw(queue.Null, nil)
		return nil
	case errors.Is(err, contract.ErrInDoubt):
		w.rollBack(0, nil)
	}
	w.withdraw(queue.Error, err)
	return nil
}
