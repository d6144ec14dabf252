package lockcmds

import (
	"cmp"
	"sync/atomic"
	"time"

	"lockproxy/internal/lockcmds/announce"
	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/owners"
	"lockproxy/internal/lockcmds/reentry"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
	"lockproxy/internal/watchdog"
)

// Which session holds what is a state machine without I/O: package ledger. Here the engine carries out its effects on leases, and tells of
// losses.

// hold is a hold of the ledger with what watches its lease. Its fields are guarded by Engine.mu.
type hold struct {
	ledger.Hold
	lease *watchdog.Lease
	by    calls.Own // the connections of the identity that acquired it last: renewals and GRACE need its rights
	chain turns.Chain
}

func newHold() *ledger.Hold {
	h := &hold{}
	h.Tag = h
	return &h.Hold
}

// holdOf is the hold of an entry of the ledger, or nil.
func holdOf(h *ledger.Hold) *hold {
	if h == nil {
		return nil
	}
	return h.Tag.(*hold)
}

// heldBy reports whether the session has holds that it has not begun to release. Requires Engine.mu.
func (h *hold) heldBy(c *client) bool {
	if h == nil {
		return false
	}
	o := h.HolderOf(&c.Session)
	return o != nil && o.Holds > 0
}

// entry is the hold as the watchdog knows it.
func (h *hold) entry() watchdog.Entry {
	return watchdog.Entry{
		Key: h.Lock, Owner: h.Owner, Fence: h.Fence, TTL: h.TTL, Until: h.Until, Fixed: h.Fixed, Group: h.by.Node(h.Lock),
	}
}

// client is what the engine keeps of one session.
type client struct {
	ledger.Session // Name is "<UUID>:<token>"; Name and Losses are immutable, the rest is guarded by Engine.mu

	s contract.Session // immutable

	// As the session has sent its last acquire. Guarded by the session's lock.
	client reentry.Client
	proto  int

	// Guarded by Engine.mu.
	ended bool
	ask   *waiter // the acquire in progress
	// removing is how many fields of the session are being removed: see fields.go.
	removing int
}

// clientLocked returns what is kept of a session, from its first lock command on.
func (e *Engine) clientLocked(s contract.Caller) *client {
	c := e.clients[s.ID]
	if c == nil {
		c = &client{s: s.Session}
		c.Name, c.Losses, c.Tag = owners.Default(e.opts.UUID, s.Token), s.Losses, c
		e.clients[s.ID] = c
	}
	return c
}

// partOf is what a session writes about its part in a lock of that owner: the number of the call and, if it is not the owner's only
// session, its name.
func (e *Engine) partOf(c *ledger.Session, owner string) script.Part {
	p := script.Part{Owner: owner, Request: e.nextRequest()}
	if owner != c.Name {
		p.Session = c.Name
	}
	return p
}

// nextRequest is the number of a call. It grows, also for a session that moves to another engine.
func (e *Engine) nextRequest() int64 { return e.opts.Requests.Add(1) }

// beginLocked begins a command of a session about a lock that it may hold: it finds the session and the owner, which is the session's own
// if the command names none. lost: the session has lost the lock before, and is to be told so by the reply.
func (e *Engine) beginLocked(s contract.Caller, cmd grammar.Command) (c *client, k ledger.Key, lost bool) {
	c = e.clientLocked(s)
	k = ledger.Key{Lock: cmd.Key, Owner: cmp.Or(cmd.Owner, c.Name)}
	return c, k, cmd.Verb != grammar.Lock && cmd.Verb != grammar.TryLock && cmd.Verb != grammar.FairLock && e.ledger.KnowsLoss(&c.Session, k)
}

// pause pauses the lease of a hold for a command that sets it to that length. It reports whether the command may be sent at once: a renewal
// on its way is waited for, by ordered, only if it could give the lock a longer lease than the command. h is nil: there is no hold, and
// nothing to pause. Requires the session lock.
func pause(h *hold, lease time.Duration) (now bool) {
	if h != nil && lease >= h.TTL {
		h.lease.Pause(nil)
	}
	return h == nil || lease >= h.TTL
}

// ordered pauses a lease and runs send, with the session locked, when no renewal of the lease is on its way: at once, or later. If the
// session ends before that, the lease goes on as it was. Requires the session lock.
func (e *Engine) ordered(s contract.Session, l *watchdog.Lease, send func()) {
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
		if !e.guard.Do(s, send) {
			l.Continue()
		}
	})
	if !state.CompareAndSwap(asking, waiting) {
		send()
	}
}

// settleLocked carries out the effects of the ledger. It returns the loss that is to be told without locks; nil: there is none.
func (e *Engine) settleLocked() (told *ledger.Loss) {
	for _, f := range e.ledger.Effects() {
		h := holdOf(f.Hold)
		switch f.Op {
		case ledger.Track:
			h.lease = e.watchdog.Track(h.entry(), f.SentAt)
		case ledger.Pause:
			h.lease.Pause(nil)
		case ledger.Resume:
			if !h.lease.Resume(f.SentAt, h.entry()) {
				h.lease = e.watchdog.Track(h.entry(), f.SentAt)
			}
		case ledger.Continue:
			h.lease.Continue()
		case ledger.Forget:
			h.lease.Forget()
		case ledger.Tell:
			told = f.Loss
		}
	}
	e.holding.Store(int64(e.ledger.Len()))
	return told
}

// ReasonForced is the reason of a loss by FORCEUNLOCK through this proxy; the watchdog knows the others.
const ReasonForced watchdog.Reason = "forced"

// LossReasons lists what Events.Lost may be given.
func LossReasons() []string {
	return []string{
		string(watchdog.ReasonGone), string(watchdog.ReasonDeadline), string(watchdog.ReasonExpired), string(watchdog.ReasonMaxHold), string(ReasonForced),
	}
}

// onLost is the watchdog's verdict. It is called at most once per lease.
func (e *Engine) onLost(l *watchdog.Lease, reason watchdog.Reason) {
	defer e.guard.Stop()
	entry := l.Entry()
	e.mu.Lock()
	h := holdOf(e.ledger.Find(ledger.Key{Lock: entry.Key, Owner: entry.Owner}))
	if h == nil || h.lease != l {
		e.mu.Unlock()
		return
	}
	var rest []calls.Rollback
	if reason != watchdog.ReasonGone {
		// Our clock, not Redis, says that the lease is over. The sessions are told, so what Redis may have left of their holds is of no
		// use to them.
		rest = e.staleLocked(h)
	}
	e.ledger.Lost(&h.Hold, string(reason), false, nil)
	told := e.settleLocked()
	e.waits.wakeLocked(entry.Key)
	e.mu.Unlock()
	e.tell(told)
	for _, r := range rest {
		e.calls.RollBack(r)
	}
}

// staleLocked is the rollbacks of a hold that the sessions here have lost, for as long as Redis may have something of it.
func (e *Engine) staleLocked(h *hold) []calls.Rollback {
	all := make([]calls.Rollback, 0, len(h.Holders()))
	for _, o := range h.Holders() {
		part := e.partOf(o.Session, h.Owner)
		part.Fence = h.Fence
		all = append(all, calls.Rollback{Drop: script.Drop{Key: h.Lock, Part: part}, By: h.by.Node(h.Lock), Limit: max(h.TTL, e.opts.Lease)})
	}
	return all
}

// forced tells the holder of the grant that was ended, if it is here, and wakes the waiters here. A holder elsewhere, or one whose grant
// is still on its way here, learns it from its next renewal.
func (e *Engine) forced(k ledger.Key, fence int64) {
	e.mu.Lock()
	if h := e.ledger.Find(k); h != nil && h.Fence == fence {
		e.ledger.Lost(h, string(ReasonForced), true, nil)
	}
	told := e.settleLocked()
	e.waits.wakeLocked(k.Lock)
	e.mu.Unlock()
	e.tell(told)
}

// tell announces a loss: to metrics, to the log, to the holders by a push, to subscribers by a channel. nil: there is nothing to tell. It
// leaves the work to a job. Requires no locks.
func (e *Engine) tell(l *ledger.Loss) {
	if l == nil {
		return
	}
	if f := e.opts.Events.Lost; f != nil {
		f(l.Reason)
	}
	e.losses.Tell(announce.Loss{
		Key: l.Key.Lock, Owner: l.Key.Owner, Fence: l.Fence, Reason: l.Reason, Expired: l.Reason == string(watchdog.ReasonExpired),
		Held: e.clock.Now().Sub(l.Since), Client: contract.ClientInfo(l.Client),
		Push: func(push []byte) {
			for _, c := range l.To {
				s := c.Tag.(*client).s
				e.guard.Do(s, func() { s.Push(push) })
			}
		},
	})
}
