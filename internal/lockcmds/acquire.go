package lockcmds

import (
	"errors"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/reentry"
	"lockproxy/internal/lockcmds/replies"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
)

// waiter is one acquire in progress, from its first attempt on the session's own connection to its answer.
type waiter struct {
	queue.Waiter // its state in the wait queue; guarded by Engine.mu

	// Immutable after startAcquire.
	e       *Engine
	kind    *kind
	c       *client
	key     string
	verb    grammar.Verb
	fixed   bool
	lease   time.Duration
	maxHold time.Duration // 0: none
	grace   time.Duration // negative: all
	wait    time.Duration // negative: without a limit
	began   time.Time
	visit   *visit        // nil: the session's home is this engine
	sent    calls.Request // the first attempt

	// Guarded by Engine.mu.
	timer   clock.Timer // its own deadline
	paused  *hold       // the hold it re-enters; not renewed until the outcome is known
	request int64       // number of the acquire: all copies of it, and all its attempts, have the same
	fence   int64       // of the grant that it deepens; 0: none
	holds   int64       // of the session afterwards, if it is that grant
	mark    queue.Mark  // before the first attempt
	chain   turns.Chain // of the hand-over on its way
}

// visit is an acquire of a session whose home is another engine: it is to deepen a hold from before an AUTH.
type visit struct {
	home   *Engine
	caller contract.Caller
	cmd    grammar.Command // what was asked for
}

// home is the engine where the session belongs.
func (w *waiter) home() *Engine {
	if w.visit != nil {
		return w.visit.home
	}
	return w.e
}

// part is what the acquire writes about its session's part in the lock.
func (w *waiter) part() script.Part {
	p := script.Part{Owner: w.Owner, Request: w.request, Fence: w.fence, Holds: w.holds}
	if w.Shared {
		p.Session = w.c.Name
	}
	return p
}

// hold names the hold that the waiter asks for.
func (w *waiter) hold() ledger.Key { return ledger.Key{Lock: w.key, Owner: w.Owner} }

// grant is Redis's word that a waiter's owner holds the lock.
type grant struct {
	fence  int64
	count  int64 // holds of the owner
	mine   int64 // of the session
	sentAt time.Time
}

func grantOf(a script.Acquired, sentAt time.Time) grant {
	return grant{fence: a.Fence, count: a.Holds, mine: a.Mine, sentAt: sentAt}
}

// startAcquire starts an acquire that was asked for at that moment, by a session of the engine home. Requires the session lock.
func (e *Engine) startAcquire(s contract.Caller, cmd grammar.Command, began time.Time, home *Engine) {
	w := &waiter{
		e: e, kind: kindOf(cmd.Verb), verb: cmd.Verb, key: cmd.Key, wait: cmd.Wait, began: began,
		lease: cmd.Lease, fixed: cmd.Lease > 0, maxHold: cmd.MaxHold, grace: cmd.Grace,
	}
	if home != e {
		w.visit = &visit{home: home, caller: s, cmd: cmd}
	}
	defaults := e.opts.defaults()
	if !w.fixed {
		w.lease = defaults.Lease
	}
	if w.maxHold < 0 {
		w.maxHold = defaults.MaxHold
	}
	if w.maxHold > 0 {
		w.lease = min(w.lease, w.maxHold)
	}
	if w.grace < 0 && defaults.Grace != nil {
		w.grace = *defaults.Grace
	}
	e.mu.Lock()
	c, k, _ := e.beginLocked(s, cmd)
	c.client, c.proto = reentry.Client{ClientInfo: s.Info, Library: s.Library}, s.Proto
	h := holdOf(e.ledger.Find(k))
	if cmd.Owner == "" && e.opts.Reentry.Refuses() && h.heldBy(c) {
		e.mu.Unlock()
		e.opts.Reentry.Note(c.client, cmd.Key, true)
		s.Reply(replies.NoReentry(cmd.Verb, s.Proto))
		return
	}
	w.c = c
	w.Waiter = queue.Waiter{Kind: w.kind.waits, Owner: k.Owner, Shared: cmd.Owner != "", Placed: cmd.Wait != 0, Tag: w}
	if w.Named() {
		n := script.NamesOf(w.key)
		w.Place, w.Wake = n.PlaceOf(w.Owner), n.NameChannel(w.Owner)
	}
	w.c.ask = w
	w.request, w.holds = e.nextRequest(), 1
	if h != nil {
		w.paused = h
		if o := h.HolderOf(&c.Session); o != nil {
			w.fence, w.holds = h.Fence, o.Holds+1
		}
	}
	if w.wait != 0 {
		w.mark = e.waits.set.Mark(&w.Waiter, w.key)
	}
	queues := s.NothingPending && h == nil && home == e && w.wait != 0 && !w.Shared && e.waits.set.MayJoin(w.key, w.Kind)
	e.mu.Unlock()
	if queues {
		w.mark = queue.Mark{} // if it turns out to be the first after all, it must ask
		if reply := w.await(script.Acquired{PTTL: script.NoTTL}); reply != nil {
			s.Reply(reply)
		}
		return
	}
	if pause(h, w.lease) {
		w.sendAcquire()
		return
	}
	e.ordered(s.Session, h.lease, w.sendAcquire)
}

// sendAcquire makes the first attempt. A fair one takes its place in the queue in the same step, so that the order is
// that in which Redis hears of them. Requires the session lock.
func (w *waiter) sendAcquire() {
	w.sent = calls.Request{Session: w.c.s, For: w}
	w.e.calls.Send(w.kind.ask(w).Call, &w.sent)
}

// Answered is the outcome of the first attempt. Requires the session lock, or that the session has ended.
func (w *waiter) Answered(o calls.Outcome) []byte {
	a, err := calls.Decoded(o.Reply, o.Err, script.DecodeAcquired)
	switch {
	case errors.Is(err, contract.ErrInDoubt):
		w.rollBackAcquire(0, nil)
		w.turnAway(queue.Error, err) // it may have a place in the queue
		return nil
	case calls.IsOverwritten(err) && w.overwritten():
		return replies.LostLease()
	case err != nil:
		w.finish()
		return replies.Failure(err)
	case a.Granted:
		w.e.damage.Note(w.key, a.Damage)
		return w.granted(grantOf(a, o.SentAt))
	}
	w.e.mu.Lock()
	told := w.overtakenLocked()
	w.e.mu.Unlock()
	w.e.tell(told)
	if w.wait == 0 {
		w.finish()
		return replies.Null(w.c.proto)
	}
	if w.goHome() {
		return nil
	}
	return w.await(a)
}

// overtakenLocked ends the hold that an acquire was to deepen, when Redis says that another owner has the lock.
func (w *waiter) overtakenLocked() *ledger.Loss {
	h := w.paused
	w.paused = nil
	if h == nil || !w.e.ledger.Knows(&h.Hold) {
		return nil
	}
	w.e.ledger.Lost(&h.Hold, ledger.Gone, false, nil)
	return w.e.settleLocked()
}

// overwritten ends an acquire of a key that holds something else than a lock, if the session held one there: that it was
// lost is the answer.
func (w *waiter) overwritten() bool {
	w.e.mu.Lock()
	h := w.paused
	lost := w.c.Losses.Forget(w.key, w.Owner)
	var told *ledger.Loss
	if h != nil && w.e.ledger.Knows(&h.Hold) {
		w.paused = nil
		w.e.ledger.Lost(&h.Hold, ledger.Gone, false, &w.c.Session)
		told = w.e.settleLocked()
		lost = true
	}
	if lost {
		w.finishLocked()
	}
	w.e.mu.Unlock()
	w.e.tell(told)
	return lost
}

// Again implements calls.Asker.
func (w *waiter) Again() (script.Call, bool) { return w.kind.ask(w).Call, true }

// Doubted implements calls.Asker.
func (w *waiter) Doubted() { w.e.doubt(w.c) }

// finish ends an acquire that came to nothing.
func (w *waiter) finish() {
	w.e.mu.Lock()
	w.finishLocked()
	w.e.mu.Unlock()
}

func (w *waiter) finishLocked() {
	if w.timer != nil {
		w.timer.Stop()
	}
	if w.c.ask == w {
		w.c.ask = nil
	}
	w.unpauseLocked()
}

// unpauseLocked lets the hold that the acquire was to deepen be renewed again.
func (w *waiter) unpauseLocked() {
	if w.paused != nil {
		w.paused.lease.Continue()
		w.paused = nil
	}
}

// reply answers a finished acquire from a job or a timer. Requires no locks.
func (w *waiter) reply(build func(proto int) []byte) {
	w.e.guard.Do(w.c.s, func() { w.c.s.Reply(build(w.c.proto)) })
}

// granted turns a grant into the reply, with the lease watched from here on. Nil: the client cannot use the grant; the waiter goes on,
// or is answered when the grant has been rolled back. Requires the session lock, or that the session has ended.
func (w *waiter) granted(g grant) []byte {
	w.e.mu.Lock()
	if w.c.ended {
		w.finishLocked()
		w.e.mu.Unlock()
		w.rollBackAcquire(g.fence, nil)
		return nil
	}
	lost, late := w.deepensLostLocked(g), w.e.clock.Now().Sub(g.sentAt) >= w.lease
	if !lost && !late {
		told := w.holdLocked(g)
		w.finishLocked()
		w.e.mu.Unlock()
		w.e.tell(told)
		if g.mine > 1 && !w.Shared {
			w.e.opts.Reentry.Note(w.c.client, w.key, false)
		}
		if f := w.e.opts.Events.Granted; f != nil {
			f(w.verb, w.e.clock.Now().Sub(w.began))
		}
		return redcon.AppendInt(nil, g.fence)
	}
	w.e.mu.Unlock()
	w.e.log.Warn("a grant came too late to be used", zap.String("key", w.key))
	if lost || w.wait != 0 && !w.fixed {
		w.rollBackAcquire(g.fence, nil)
		w.beginAnew()
		return nil
	}
	w.finish()
	w.rollBackAcquire(g.fence, w.e.calls.OnceWithin(calls.DoubtLimit, func(ok bool) {
		if ok {
			w.reply(replies.Null)
		} else {
			w.reply(replies.Failed(contract.ErrInDoubt))
		}
	}))
	return nil
}

// beginAnew has an acquire ask once more whose grant cannot be used: what Redis has of that grant is replaced in the same step, or
// rolled back before.
func (w *waiter) beginAnew() {
	w.e.mu.Lock()
	w.unpauseLocked()
	w.request, w.fence, w.holds = w.e.nextRequest(), 0, 1
	w.e.mu.Unlock()
	w.e.calls.Background(jobs.Attempt, w.goOn)
}

// deepensLostLocked reports whether the grant is one that the session was told to have lost while the acquire was on its way: our clock
// judges earlier than Redis's. A client that was not listening would count on its earlier holds if it got the same fence again.
func (w *waiter) deepensLostLocked(g grant) bool {
	return w.fence != 0 && g.fence == w.fence && !w.e.ledger.Deepens(&w.c.Session, w.hold(), g.fence)
}

// holdLocked records the grant and has its lease watched. It returns an older hold of the same owner that this grant
// proves lost.
func (w *waiter) holdLocked(g grant) (told *ledger.Loss) {
	grant := ledger.Grant{
		By: &w.c.Session, Key: w.hold(), Fence: g.fence, Count: g.count, Mine: g.mine, SentAt: g.sentAt,
		TTL: w.lease, Fixed: w.fixed, MaxHold: w.maxHold, Grace: w.grace, Client: ledger.Client(w.c.client.ClientInfo),
	}
	if w.paused != nil {
		grant.Paused = &w.paused.Hold
	}
	held, fresh := w.e.ledger.Granted(grant)
	if h := holdOf(held); h != nil {
		h.by = w.home().own
		if fresh {
			h.chain = w.chain
		}
		if w.paused == h {
			w.paused = nil // the ledger has ended the pause
		}
	}
	return w.e.settleLocked()
}

// goHome has the session's home start an acquire anew, if that is another engine: this engine has no hold that the acquire could
// deepen. Requires the session lock.
func (w *waiter) goHome() bool {
	v := w.visit
	if v == nil {
		return false
	}
	w.e.mu.Lock()
	ended := w.c.ended
	w.finishLocked()
	w.e.mu.Unlock()
	if !ended {
		again := v.caller
		again.NothingPending = false // the answer to this attempt is being dealt with
		v.home.startAcquire(again, v.cmd, w.began, v.home)
	}
	return true
}
