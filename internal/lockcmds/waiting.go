package lockcmds

import (
	"errors"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// await makes a busy acquire a waiter; a is the answer to its attempt. It returns the reply if the acquire must not
// wait, else nil. Requires the session lock.
func (w *acquire) await(a script.Acquired) []byte {
	e, key := w.e, w.Lock
	e.mu.Lock()
	defer e.mu.Unlock()
	w.waited = true
	w.noteHolderLocked()
	refusal, ended := e.table.Denied(key), w.s.ended
	full, limit := e.fullLocked(key)
	switch {
	case ended, refusal != nil, full != "":
		outcome := waitFailed
		if ended {
			outcome = waitHungUp
		}
		w.noteEnd(e.opts.Clock.Now(), outcome)
		w.finishLocked()
		e.stepLocked(func(t *table.Table) { t.Withdraw(&w.Waiter, key, table.Gone, nil) })
	default:
		e.stepLocked(func(t *table.Table) { t.Join(&w.Waiter, e.namesOfLocked(key), w.mark, answerOf(a, w.Lease, nil)) })
		if circle := e.table.Deadlock(&w.Waiter); circle != nil {
			e.calls.Background(jobs.Urgent, func() { w.refuseDeadlock(circle) })
		} else if e.table.BlocksItself(&w.Waiter) {
			w.watchBehindLocked()
		}
		if w.Wait > 0 {
			left := w.began.Add(w.Wait).Sub(e.opts.Clock.Now())
			w.timer = e.opts.Clock.AfterFunc(left, func() { e.step(func(t *table.Table) { t.TimedOut(&w.Waiter) }) })
		}
		return nil
	}
	switch {
	case ended:
		return nil
	case refusal != nil:
		return w.replyTo(table.Error, refusal)
	}
	w.refused(limit)
	return overloadedReply(full)
}

// leftLocked ends an acquire that has left its wait queue. A granted one goes on: its attempt delivers the grant.
// Requires keeper.mu.
func (w *acquire) leftLocked(f *table.Effect) {
	for _, timer := range []jobs.Timer{w.timer, w.blocks} {
		if timer != nil {
			timer.Stop()
		}
	}
	now := w.e.opts.Clock.Now()
	if left := w.e.opts.Events.Left; left != nil {
		left(f.Outcome, now.Sub(w.began))
	}
	w.e.opts.Hot.Waited(w.e.opts.Account, w.Lock, now.Sub(w.began), now)
	if f.Outcome == table.Granted {
		return
	}
	w.noteEnd(now, outcomeOf(f.Outcome))
	w.finishLocked()
	if f.Outcome == table.Gone && !f.Doubt {
		return
	}
	left := *f // the table uses f again
	w.e.calls.Background(jobs.Urgent, func() { w.without(&left) })
}

// without answers an acquire that has left its wait queue and has not got the lock. If an attempt was not answered, the
// lock may have been granted: then that is rolled back. Requires no locks.
func (w *acquire) without(f *table.Effect) {
	switch {
	case f.Outcome == table.Gone:
		w.undo(grant{}, nil)
	case f.Doubt:
		w.undo(grant{}, w.replyTo(f.Outcome, f.Err))
	default:
		w.reply(w.replyTo(f.Outcome, f.Err))
	}
}

// withdraw ends an acquire that is in no wait queue, with that outcome. The reply comes when its place has left the
// queue in Redis: a client that asks again at once must not be taken out by the clean-up of its earlier wait. Requires
// no locks.
func (w *acquire) withdraw(o table.Outcome, err error) {
	w.e.mu.Lock()
	defer w.e.mu.Unlock()
	w.finishLocked()
	if o == table.Gone { // no Finish follows, by which leftLocked tells observers
		w.noteEnd(w.e.opts.Clock.Now(), waitHungUp)
	}
	w.e.stepLocked(func(t *table.Table) { t.Withdraw(&w.Waiter, w.Lock, o, err) })
}

// replyTo is the reply to an acquire that has to go without the lock.
func (w *acquire) replyTo(o table.Outcome, err error) []byte {
	switch {
	case errors.Is(err, errDraining):
		w.refused("")
		return overloadedReply(errDraining.Error())
	case o == table.Error && !(errors.Is(err, errHoldsShared) && w.Verb == grammar.TryLock):
		return failureReply(err)
	}
	return nullReply(w.s.Proto)
}

// refused tells metrics and the log that the client may not wait. limit is the setting that is the reason; empty: the
// proxy stops.
func (w *acquire) refused(limit string) {
	if f := w.e.opts.Events.Refused; f != nil {
		f(limit, w.s.Client.Addr)
	}
}

// replicas is how many replicas there are for a lock; 0: it is not known.
func (e *keeper) replicas(lock string) int {
	if e.opts.Replicas == nil {
		return 0
	}
	return e.opts.Replicas(lock)
}

// noteHolderLocked notes the holder behind which the acquire begins to wait, unless it has waited before. Requires
// keeper.mu.
func (w *acquire) noteHolderLocked() {
	if w.behind != nil || w.e.defaults().Slow == 0 {
		return
	}
	holder := w.e.holderLocked(w.Lock)
	if holder.owner == "" {
		holder.owner = elsewhere
	}
	w.behind = &holder
}

// noteEnd logs the end of an acquire that was slow. If it has not waited, the attempt itself was slow.
func (w *acquire) noteEnd(now time.Time, end waitEnd) {
	took := now.Sub(w.began)
	if !w.e.slow(took) {
		return
	}
	by, behind := party{w.Owner, w.s.Client, w.Note}, party{}
	if w.behind != nil {
		behind = *w.behind
	}
	w.e.logWait(by, w.Lock, took, end, behind)
}

// outcomeOf is the word for the outcome of a wait without the lock.
func outcomeOf(o table.Outcome) waitEnd {
	switch o {
	case table.Null:
		return waitTimedOut
	case table.Gone:
		return waitHungUp
	default:
		return waitFailed
	}
}
