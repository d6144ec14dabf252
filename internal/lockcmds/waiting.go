package lockcmds

import (
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if it must not wait, else nil.
// Requires the session lock.
func (e *Engine) await(w *waiter, a script.Acquired) []byte {
	e.mu.Lock()
	defer e.mu.Unlock()
	refusal, full := e.queues.Denied(w.key), e.fullLocked(w.key)
	switch {
	case w.c.ended, refusal != nil, full != "":
		e.finishLocked(w)
		e.stepLocked(func(q *queue.Set) { q.Withdraw(&w.Waiter, w.key, queue.Gone, nil) })
	default:
		e.stepLocked(func(q *queue.Set) { q.Join(&w.Waiter, e.namesOf(w.key), w.mark, answerOf(w, a, nil)) })
		if w.wait > 0 {
			left := w.began.Add(w.wait).Sub(e.clock.Now())
			w.timer = e.clock.AfterFunc(left, func() { e.step(func(q *queue.Set) { q.TimedOut(&w.Waiter) }) })
		}
		return nil
	}
	switch {
	case w.c.ended:
		return nil
	case refusal != nil:
		return e.replyTo(queue.Error, refusal, w.InDoubt())(w.caller.Proto)
	}
	e.refusedOne()
	if w.InDoubt() {
		return appendFailure(nil, ErrInDoubt)
	}
	return resp.AppendError(nil, resp.Overloaded, full)
}

// namesOf is what waiting for a lock needs.
func (e *Engine) namesOf(key string) queue.Names {
	n := script.NamesOf(key)
	return queue.Names{Key: key, Channel: n.Channel, Place: n.PlaceOf(e.place), Wake: n.NameChannel(e.place)}
}

// fullLocked says why nobody may wait for this lock now; empty: one may.
func (e *Engine) fullLocked(key string) string {
	switch {
	case e.draining:
		return "draining"
	case e.opts.MaxWaiters > 0 && e.opts.Waiting.Load() >= int64(e.opts.MaxWaiters):
		return "too many waiters"
	case e.opts.MaxWaitersPerLock > 0 && int(e.waitersLocked(key)) >= e.opts.MaxWaitersPerLock:
		return "too many waiters for this lock"
	}
	return ""
}

// waitersLocked is how many waiters a lock has here. Requires e.mu.
func (e *Engine) waitersLocked(key string) int64 {
	if q := e.queues.Find(key); q != nil {
		all, _ := q.Len()
		return int64(all)
	}
	return 0
}
