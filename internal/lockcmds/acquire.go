package lockcmds

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/tidwall/redcon"

	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
	"lockproxy/internal/resp"
	"lockproxy/internal/watchdog"
)

// waiter is one acquire in progress, from its first attempt on the session's own connection to its answer.
type waiter struct {
	queue.Waiter // its state in the wait queue; guarded by Engine.mu

	// Immutable after startAcquire.
	kind    *kind
	c       *client
	caller  Caller
	verb    grammar.Verb
	key     string
	lease   time.Duration
	fixed   bool
	maxHold time.Duration // 0: none
	grace   time.Duration // negative: all
	wait    time.Duration // negative: without a limit
	began   time.Time
	cmd     grammar.Command // what was asked for
	home    *Engine         // where the session belongs: another engine if it deepens a hold from before an AUTH

	// Guarded by Engine.mu.
	timer  clock.Timer // its own deadline
	paused *hold       // the hold it re-enters; not renewed until the outcome is known
	rest   rest        // what nobody holds any more of a grant that it was to deepen
	dead   int64       // fence of a grant that the session has been told to have lost
	sentAt time.Time   // before the latest attempt was sent
	mark   queue.Mark  // before the first attempt
	before before      // of an attempt in doubt
	chain  turns.Chain // of the hand-over on its way
}

// grantOf names the grant.
func (w *waiter) grantOf(g grant) grantOf { return grantOf{holdKey{w.key, w.Owner}, g.fence} }

// grant is Redis's word that a waiter's owner holds the lock.
type grant struct {
	fence, count int64
	sentAt       time.Time
}

// startAcquire starts an acquire that was asked for at that moment, by a session of the engine home. Requires the session lock.
func (e *Engine) startAcquire(s Caller, cmd grammar.Command, began time.Time, home *Engine) {
	w := &waiter{
		kind: kindOf(cmd.Verb), verb: cmd.Verb, key: cmd.Key, wait: cmd.Wait, began: began,
		lease: cmd.Lease, fixed: cmd.Lease > 0, maxHold: cmd.MaxHold, grace: cmd.Grace,
		cmd: cmd, home: home, caller: s,
	}
	if !w.fixed {
		w.lease = e.opts.Lease
	}
	if w.maxHold < 0 {
		w.maxHold = e.opts.MaxHold
	}
	if w.maxHold > 0 {
		w.lease = min(w.lease, w.maxHold)
	}
	if w.grace < 0 && e.opts.Grace != nil {
		w.grace = *e.opts.Grace
	}
	e.mu.Lock()
	w.c = e.clientLocked(s)
	w.Waiter = queue.Waiter{Kind: w.kind.waits, Owner: cmd.Owner, Shared: cmd.Owner != "", Placed: cmd.Wait != 0, Tag: w}
	if !w.Shared {
		w.Owner = w.c.owner
	}
	if w.Named() {
		n := script.NamesOf(w.key)
		w.Place, w.Wake = n.PlaceOf(w.Owner), n.NameChannel(w.Owner)
	}
	k := holdKey{w.key, w.Owner}
	if r := e.returning[k]; r != nil {
		e.deferLocked(r, s.Session, func() { e.startAcquire(s, cmd, began, home) }, nil)
		e.mu.Unlock()
		return
	}
	w.c.ask = w
	h := e.holds[k]
	if h != nil {
		w.paused = h
	}
	if w.wait != 0 {
		w.mark = e.waits.set.Mark(&w.Waiter, w.key)
	}
	queues := s.NothingPending && h == nil && home == e && w.wait != 0 && !w.Shared && e.waits.set.MayJoin(w.key, w.Kind)
	e.mu.Unlock()
	if queues {
		w.mark = queue.Mark{} // if it turns out to be the first after all, it must ask
		if reply := e.await(w, script.Acquired{PTTL: script.NoTTL}); reply != nil {
			s.Reply(reply)
		}
		return
	}
	if h == nil {
		e.sendAcquire(w)
		return
	}
	e.ordered(s.Session, h.lease, func() { e.sendAcquire(w) }, func() { h.lease.Continue() })
}

// ordered runs send, with the session locked, when no renewal of the lease is on its way: at once, or later. If the
// session ends before that, abandoned runs instead. The caller has the session locked.
func (e *Engine) ordered(s Session, l *watchdog.Lease, send, abandoned func()) {
	const (
		asking  = iota
		free    // no renewal is on its way
		waiting // Pause has returned and send waits for the renewal
	)
	var state atomic.Int32
	l.Pause(func() {
		if state.CompareAndSwap(asking, free) {
			return // still in Pause, on this goroutine or another: the session is locked already
		}
		if !e.do(s, send) {
			abandoned()
		}
	})
	if !state.CompareAndSwap(asking, waiting) {
		send()
	}
}

// sendAcquire makes the first attempt. A fair one takes its place in the queue in the same step, so that the order is
// that in which Redis hears of them. Requires the session lock.
func (e *Engine) sendAcquire(w *waiter) {
	q := w.kind.ask(e, w)
	w.sentAt = e.clock.Now()
	e.script(w.c.s, Call{Call: q.Call, Done: func(reply resp.Value, err error) []byte {
		a, err := decoded(reply, err, q.decode)
		return e.acquired(w, a, err)
	}})
}

// acquired is the outcome of the first attempt. Requires the session lock.
func (e *Engine) acquired(w *waiter, a script.Acquired, err error) []byte {
	switch {
	case errors.Is(err, ErrInDoubt):
		e.doubt(w)
		return nil
	case isOverwritten(err) && e.overwritten(w):
		return lostLease()
	case err != nil:
		e.finish(w)
		return appendFailure(nil, err)
	case a.Granted:
		e.note(w.key, a.Damage)
		return e.granted(w, grant{fence: a.Fence, count: a.Holds, sentAt: w.sentAt})
	}
	e.mu.Lock()
	told := e.overtakenLocked(w)
	e.mu.Unlock()
	e.tell(told)
	if w.wait == 0 {
		e.finish(w)
		return resp.AppendNull(nil, w.caller.Proto)
	}
	if e.goHome(w) {
		return nil
	}
	return e.await(w, a)
}

// overtakenLocked ends the hold that an acquire was to deepen, when Redis says that another owner has the lock.
func (e *Engine) overtakenLocked(w *waiter) *loss {
	h := w.paused
	w.paused = nil
	if h == nil || e.holds[h.holdKey] != h {
		return nil
	}
	return e.loseLocked(h, watchdog.ReasonGone, nil)
}

// overwritten ends an acquire of a key that holds something else than a lock, if the session held one there: that it was
// lost is the answer.
func (e *Engine) overwritten(w *waiter) bool {
	e.mu.Lock()
	h := w.paused
	lost := w.c.lost.Forget(w.key, w.Owner)
	var told *loss
	if h != nil && e.holds[h.holdKey] == h {
		w.paused = nil
		told = e.loseLocked(h, watchdog.ReasonGone, w.c)
		lost = true
	}
	if lost {
		e.finishLocked(w)
	}
	e.mu.Unlock()
	e.tell(told)
	return lost
}

// finish ends an acquire that came to nothing.
func (e *Engine) finish(w *waiter) {
	e.mu.Lock()
	e.finishLocked(w)
	e.mu.Unlock()
}

func (e *Engine) finishLocked(w *waiter) {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.c.ask == w {
		w.c.ask = nil
	}
	e.unpauseLocked(w)
	if left := w.rest; left.holds > 0 {
		w.rest = rest{}
		e.giveBackLocked(left.grantOf, left.holds, true, left.lease)
	}
}

// unpauseLocked lets the hold that the acquire was to deepen be renewed again.
func (e *Engine) unpauseLocked(w *waiter) {
	if w.paused != nil {
		w.paused.lease.Continue()
		w.paused = nil
	}
}

// reply answers a finished acquire from a job or a timer. Requires no locks.
func (e *Engine) reply(w *waiter, build func(proto int) []byte) {
	e.do(w.c.s, func() { w.c.s.Reply(build(w.caller.Proto)) })
}

func null(proto int) []byte { return resp.AppendNull(nil, proto) }

func failed(err error) func(int) []byte {
	return func(int) []byte { return appendFailure(nil, err) }
}

// granted turns a grant into the reply, with the lease watched from here on. Nil: the lease was over before the client
// could be told; the waiter goes on, or is answered when the grant has been given back. Session locked, or ended.
func (e *Engine) granted(w *waiter, g grant) []byte {
	e.mu.Lock()
	if w.c.ended {
		e.finishLocked(w)
		e.giveBackLocked(w.grantOf(g), 1, !w.Shared, e.opts.Lease)
		e.mu.Unlock()
		return nil
	}
	if lost, late := e.deepensLostLocked(w, g), e.clock.Now().Sub(g.sentAt) >= w.lease; lost || late {
		switch {
		case lost:
			w.rest = rest{w.grantOf(g), g.count, e.opts.Lease}
			e.tryAgainLocked(w, g, g.count)
		case w.wait != 0 && !w.fixed:
			e.tryAgainLocked(w, g, 1)
		default:
			e.finishLocked(w)
			e.refuseLateLocked(w, g)
		}
		e.mu.Unlock()
		e.log.Warn("a grant came too late to be used", logKey(w.key))
		return nil
	}
	w.rest = rest{} // by now a grant that is over
	told := e.holdLocked(w, g)
	forced := e.forcedOffLocked(w.grantOf(g))
	e.finishLocked(w)
	e.mu.Unlock()
	e.tell(told)
	e.tell(forced)
	if f := e.opts.Events.Granted; f != nil {
		f(w.verb, e.clock.Now().Sub(w.began))
	}
	return redcon.AppendInt(nil, g.fence)
}

// deepensLostLocked reports whether the grant is one that the session's own owner was told to have lost, or that is being given
// back: our clock judges earlier than Redis's. Who was not listening would count on its earlier holds if it got the same fence
// again. To an explicit owner it may still belong, by another session.
func (e *Engine) deepensLostLocked(w *waiter, g grant) bool {
	if w.Shared {
		return false
	}
	k := holdKey{w.key, w.Owner}
	if h := w.paused; h != nil && h.lost {
		w.dead = h.fence
	}
	if fence := w.c.lost.Fence(k.key, k.owner); fence != 0 {
		w.dead = fence
	}
	if e.owed[grantOf{k, g.fence}] > 0 && e.holds[k] == nil {
		w.dead = g.fence
	}
	return w.dead != 0 && g.fence == w.dead
}

// holdLocked records the grant and has its lease watched. It returns an older hold of the same owner that this grant
// proves lost.
func (e *Engine) holdLocked(w *waiter, g grant) (told *loss) {
	k := holdKey{w.key, w.Owner}
	h := e.holds[k]
	if h != nil && h.fence > g.fence {
		return nil // another session of this owner has released this grant and acquired again meanwhile
	}
	if h != nil && h.fence < g.fence {
		told = e.loseLocked(h, watchdog.ReasonGone, nil)
		h = nil
	}
	fresh := h == nil
	if fresh {
		h = &hold{holdKey: k, fence: g.fence, chain: w.chain}
		e.holds[k] = h
		e.held.add(h)
		e.holding.Add(1)
	}
	if !w.Shared {
		// Only this session acts for its own owner: if Redis counts more, that is an acquire whose answer was lost, or what is being
		// given back.
		known := h.count + 1
		if extra := g.count - known; extra > 0 {
			g.count = known
			if extra -= e.owed[w.grantOf(g)]; extra > 0 {
				e.giveBackLocked(w.grantOf(g), extra, false, e.opts.Lease)
			}
		}
	}
	h.by = w.home.own
	h.explicit = h.explicit || w.Shared
	news := h.counted(g.count, g.sentAt)
	if news {
		h.ttl, h.fixed = w.lease, w.fixed
		if w.maxHold > 0 {
			h.until = g.sentAt.Add(w.maxHold)
		} else {
			h.promiseLocked(g.sentAt)
		}
	}
	h.joinLocked(w.c, w.grace, w.caller.Info)
	switch {
	case !news: // the lease is as a later command of another session has set it
		if w.paused == h {
			h.lease.Continue()
			w.paused = nil
		}
	case fresh:
		h.lease = e.dog.Track(h.entry(), g.sentAt)
	default:
		if w.paused != h {
			h.lease.Pause(nil) // Resume ends exactly one pause
		}
		if !h.lease.Resume(g.sentAt, h.entry()) {
			h.lease = e.dog.Track(h.entry(), g.sentAt)
		}
		w.paused = nil
	}
	return told
}
