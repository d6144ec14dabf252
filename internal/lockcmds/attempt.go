package lockcmds

import (
	"context"
	"errors"
	"time"

	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/resp"
)

// attempt is one script call for a waiter, as a job.
func (e *Engine) attempt(w *waiter) {
	if f := e.opts.Events.Attempt; f != nil {
		f()
	}
	a, sentAt, err := e.inquire(e.life, w)
	e.mu.Lock()
	w.sentAt = sentAt
	after := e.settleLocked(w, a, err)
	e.mu.Unlock()
	if after != nil {
		after()
	}
}

// inquire asks for the lock, but first whether the owner has it already if an earlier attempt is in doubt.
func (e *Engine) inquire(ctx context.Context, w *waiter) (a script.Acquired, sentAt time.Time, err error) {
	sentAt = e.clock.Now()
	if w.doubt { // written only between attempts
		a, err = e.ask(ctx, w)
	}
	if err == nil && !a.Granted {
		sentAt = e.clock.Now()
		a, err = e.call(ctx, w)
		e.note(w.key, a.Damage)
	}
	return a, sentAt, err
}

// call asks for the lock on the engine's own connection.
func (e *Engine) call(ctx context.Context, w *waiter) (script.Acquired, error) {
	switch {
	case w.fair():
		return runFor(ctx, e.own, e.fairCall(w).Call(), script.DecodeAcquired)
	case w.first: // written only between attempts
		return runFor(ctx, e.own, e.crowdCall(w).Call(), script.DecodeCrowd)
	default:
		return runFor(ctx, e.own, w.plainCall().Call(), script.DecodeAcquired)
	}
}

// settleLocked is what the outcome of an attempt, or of a hand-over, means for the waiter. What it returns is to be
// run without locks, and not from a session.
func (e *Engine) settleLocked(w *waiter, a script.Acquired, err error) (after func()) {
	r := w.room
	if r.trying == w {
		r.trying = nil
	}
	w.state = stateWaiting
	switch first := w.first; {
	case !first || err != nil && !errors.Is(err, ErrInDoubt):
	case err != nil:
		r.crowd.Doubt()
		e.listenForPlaceLocked(r)
	case a.Granted:
		e.crowdGrantedLocked(r, a.Place)
	case a.Placed:
		e.crowdRefusedLocked(r, a.Place)
	}
	w.first = false
	w.doubt = err != nil && (w.doubt || errors.Is(err, ErrInDoubt))
	var refusal script.Error
	switch {
	case err == nil && a.Granted:
		g := grant{fence: a.Fence, count: a.Holds, sentAt: w.sentAt}
		after = func() { e.deliver(w, g) }
		e.armLocked(r, w.lease)
		if w.again { // the message may have been about the end of this very grant
			defer e.kickLocked(w.key)
		}
		if w.explicit { // others of the owner only deepen the hold, and need not wait to be told
			t := w.topic
			defer e.wakeNamedLocked(t) // first
		}
	case w.c.ended:
		e.giveUpLocked(w)
		after = func() { e.leave(w, nil) }
	case w.dismissal != nil:
		reply := w.inDoubtOr(w.dismissal)
		after = func() { e.turnAway(w, reply) }
	case errors.As(err, &refusal):
		reply := w.inDoubtOr(failed(err))
		after = func() { e.turnAway(w, reply) }
	case w.expired:
		reply := w.inDoubtOr(null)
		after = func() { e.turnAway(w, reply) }
	case err != nil:
		r.pause = min(max(2*r.pause, retryFirst), retryLast)
		e.wakeInLocked(r, r.pause/2+e.clock.Random(r.pause/2))
		return nil
	default:
		r.pause = 0
		if w.again {
			e.tryLocked(w)
			return nil
		}
		if w.fair() {
			e.stillFairLocked(r, w, a)
			return nil
		}
		e.armLocked(r, a.PTTL)
		if a.PTTL == script.Kept {
			e.watchHeadLocked(r)
		}
		return nil
	}
	e.exitLocked(w)
	w.state = stateDone
	if w.timer != nil {
		w.timer.Stop()
	}
	if err != nil || !a.Granted {
		e.finishLocked(w)
		e.kickLocked(w.key)
	}
	return after
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
		e.giveBack(w.grantOf(g), 1, !w.explicit)
	}
}

// tryAgainLocked has an acquire start anew whose grant came too late. So many holds of it are given back first.
func (e *Engine) tryAgainLocked(w *waiter, g grant, holds int64) {
	e.unpauseLocked(w)
	e.tend(func() {
		err := e.takeOff(e.life, w.grantOf(g), holds)
		if isRefusal(err) {
			e.finish(w)
			e.turnAway(w, failed(err))
			return
		}
		e.mu.Lock()
		w.doubt = err != nil
		if err == nil {
			w.rest = rest{}
		}
		e.mu.Unlock()
		e.goOn(w)
	})
}

// goOn has an acquire ask again whose first attempt has come to nothing: as a waiter, or once if it may not wait any longer.
// Without locks, and not from a session.
func (e *Engine) goOn(w *waiter) {
	if w.wait == 0 || w.wait > 0 && e.clock.Now().Sub(w.began) >= w.wait {
		e.tend(func() { e.tryOnce(w) })
		return
	}
	e.mu.Lock()
	e.unpauseLocked(w)
	e.mu.Unlock()
	ok := e.do(w.c.s, func() {
		if e.goHome(w) {
			return
		}
		w.heard = heard{}
		if reply := e.await(w, script.Acquired{}); reply != nil {
			w.c.s.Reply(reply)
		}
	})
	if !ok {
		e.finish(w)
		e.leave(w, nil)
	}
}

// tryOnce is the last attempt of an acquire that may not wait.
func (e *Engine) tryOnce(w *waiter) {
	e.mu.Lock()
	ended := w.c.ended
	e.mu.Unlock()
	if ended {
		e.finish(w)
		e.leave(w, nil)
		return
	}
	a, sentAt, err := e.inquire(e.life, w)
	switch {
	case err != nil:
		e.finish(w)
		e.turnAway(w, failed(err))
	case a.Granted:
		e.deliver(w, grant{fence: a.Fence, count: a.Holds, sentAt: sentAt})
	default:
		e.mu.Lock()
		told := e.overtakenLocked(w)
		e.finishLocked(w)
		e.mu.Unlock()
		e.tell(told)
		e.turnAway(w, null)
	}
}

// expire is the end of a waiter's own wait.
func (e *Engine) expire(w *waiter) {
	e.mu.Lock()
	if w.state != stateWaiting {
		w.expired = true
		e.mu.Unlock()
		return
	}
	reply := w.inDoubtOr(null)
	e.exitLocked(w)
	e.finishLocked(w)
	e.mu.Unlock()
	e.turnAway(w, reply)
}

// dismissLocked takes a waiter out with that reply. If its attempt is on its way, the outcome decides: the reply is for the case that it
// comes to nothing.
func (e *Engine) dismissLocked(w *waiter, reply func(proto int) []byte) {
	if w.state == stateTrying {
		w.dismissal = reply
		return
	}
	reply = w.inDoubtOr(reply)
	e.exitLocked(w)
	e.finishLocked(w)
	if e.leavesLocked(w) {
		e.departLocked(w, func() { e.reply(w, reply) })
		return
	}
	e.jobs.Submit(jobs.Attempt, func() { e.reply(w, reply) })
}

// Unblock ends the wait of a session, as CLIENT UNBLOCK asks: as if its time were up, or with an error. It reports whether the
// session was waiting. Session locked.
func (e *Engine) Unblock(session uint64, withError bool) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clients[session]
	if c == nil || c.ask == nil || c.ask.room == nil || c.ask.dismissal != nil {
		return false
	}
	reply := null
	if withError {
		reply = func(int) []byte { return unblocked }
	}
	e.dismissLocked(c.ask, reply)
	return true
}

var unblocked = resp.AppendRawError(nil, "UNBLOCKED client unblocked via CLIENT UNBLOCK")

// inDoubtOr is the reply to a waiter that has to go without the lock: if nobody knows whether it has it, that is what it is told.
func (w *waiter) inDoubtOr(reply func(proto int) []byte) func(proto int) []byte {
	if w.doubt {
		return failed(ErrInDoubt)
	}
	return reply
}

// abandonLocked takes out a waiter whose client has hung up.
func (e *Engine) abandonLocked(w *waiter) {
	if w.state != stateWaiting {
		return // whoever has its outcome sees that the client has gone
	}
	e.giveUpLocked(w)
	e.exitLocked(w)
	e.finishLocked(w)
	if e.leavesLocked(w) {
		e.departLocked(w, nil)
	}
}

// giveUpLocked gives back what a waiter that has gone may have been granted by an attempt in doubt. For an explicit owner it is left
// to run out: others may hold it.
func (e *Engine) giveUpLocked(w *waiter) {
	k := holdKey{w.key, w.owner}
	if w.doubt && !w.explicit && e.holds[k] == nil {
		e.giveBackLocked(w.grantOf(grant{}), 1, true, e.opts.Lease)
	}
}

// turnAway answers a waiter that is out of its room, after it has left the fair queue: a client that asks again at
// once must not be taken out by the clean-up of its earlier wait.
func (e *Engine) turnAway(w *waiter, reply func(proto int) []byte) {
	e.leave(w, func() { e.reply(w, reply) })
}

// refusedOne tells metrics.
func (e *Engine) refusedOne() {
	if f := e.opts.Events.Refused; f != nil {
		f()
	}
}
