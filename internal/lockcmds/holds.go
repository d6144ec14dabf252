package lockcmds

import (
	"cmp"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// This file is the shell of package ledger: it carries out the effects of the ledger on leases, and reports losses. It
// knows the sessions of one lock engine, and the holds of each.
//
//	acquire ──► Claim ──► Part: written by the script ──► Granted ──► ledger ──► effects: the watchdog watches the lease
//	               └──► Doubt: the answer is lost ──► ledger ──► effects: the lease is shortened
//	UNLOCK, EXTENDLOCK ──► Step: an event of the ledger ────────────────┘  │
//	watchdog ──► Lost, FORCEUNLOCK ──► Forced ──► ledger ──► effects: the lease ends, Announcer.Tell
//	                                      └──► RollBack, if Redis may have a part of the hold left
//	the client hangs up ──► End ──► ledger ──► effects: the lease ends; RollBack applies GRACE
//
// Each end of a hold is told to observe.Observers.
//
// The package sends no command of a session, and does not know which clients wait. Waiters is above it.
//
// Goroutines: none of its own. A session with very many holds is ended by a job.
//
// holds.mu guards the sessions, the ledger and the holds. The watchdog and the losses of a session are used under it.
// No session method, Redis call or callback runs under it, but for Options.OnEnd and the observers, which do not block.
//
// Invariants:
//   - The lease of each hold of the ledger is watched. A hold that has ended is not renewed.
//   - A renewal does not overlap with a re-entry or extension that may shorten the lease: the lease is paused around
//     these. A release waits for no renewal: Redis refuses a renewal behind it by owner and fence.
//   - GRACE releases what the session that ends has acquired and not released.
//   - After a session was told that it lost a grant of its own owner, it never gets the same fence again.
//   - No call leaves an owner a shorter lease than the owner was promised.

// holdOptions of Holds. All fields but OnLost, OnEnd and Told are required.
type holdOptions struct {
	Calls    *calls
	Watchdog *watchdog.Watchdog
	Announce *announcer
	OnLost   func(reason string)                           // called once for each loss; it must not block. nil: not of interest
	OnEnd    func(end observe.HoldEnd, held time.Duration) // called at the end of each hold; it must not block. nil: not of interest
	UUID     string                                        // the first part of the owner of every session
	Lease    time.Duration                                 // the length of a lease without PX
	Requests *atomic.Int64                                 // numbers the calls of sessions
	Told     observe.Observers                             // of the ends of holds
}

// holds is the sessions of one engine with their holds. Its methods may be called from any goroutine.
type holds struct {
	holdOptions // immutable

	count atomic.Int64 // table.Len()

	mu       sync.Mutex // guards the fields below and all sessions and holds
	sessions map[uint64]*holdSession
	ledger   *table.Ledger
}

// newHolds returns the record of an engine without sessions.
func newHolds(o holdOptions) *holds {
	return &holds{holdOptions: o, sessions: make(map[uint64]*holdSession), ledger: table.NewLedger(newHold)}
}

// holdSession is the record of one session.
type holdSession struct {
	table.Session // Name is "<UUID>:<token>"; Name, Losses and Held are immutable, holds.mu guards the rest

	ID   uint64           // immutable
	Conn contract.Session // immutable

	// As the session has sent its last acquire. Guarded by the session's lock.
	Client reentrant
	Proto  int

	// Guarded by holds.mu.
	ended bool
}

// Ended reports whether the client of the session has gone. It is for an event of Step. Requires holds.mu.
func (s *holdSession) Ended() bool { return s.ended }

// sessionHold is a hold of the ledger with its lease. holds.mu guards its fields.
type sessionHold struct {
	table.Hold
	Streak table.Streak // of the hand-over that has granted it
	Sync   int          // replicas that had to have the grant

	lease *watchdog.Lease
	by    scriptRunner // the connections of the identity that acquired it last: renewals and GRACE need its rights
	look  look         // whether Redis is asked about the grant
}

func newHold() *table.Hold {
	h := &sessionHold{}
	h.Tag = h
	return &h.Hold
}

// holdOf returns the hold of an entry of the ledger, or nil.
func holdOf(h *table.Hold) *sessionHold {
	if h == nil {
		return nil
	}
	return h.Tag.(*sessionHold)
}

// entry is the hold as the watchdog knows it.
func (h *sessionHold) entry() watchdog.Entry {
	return watchdog.Entry{
		Key: h.Lock, Owner: h.Owner, Fence: h.Fence, TTL: h.TTL, Until: h.Until, Fixed: h.Fixed, Group: h.by.Node(h.Lock),
	}
}

// Deadline is the end of the lease of a hold, by the proxy's clock.
func (h *sessionHold) Deadline() time.Time { return h.lease.Deadline() }

// NextLease is the lease that a renewal of the hold gives now: MAXHOLD limits it. Requires holds.mu.
func (x *holds) NextLease(h *sessionHold) time.Duration {
	if h.Until.IsZero() {
		return h.TTL
	}
	return max(time.Millisecond, min(h.TTL, h.Until.Sub(x.Calls.Clock.Now())))
}

// pauseLocked is Holds.Pause. Requires holds.mu.
func (h *sessionHold) pauseLocked(lease time.Duration) (now bool) {
	if now = lease >= h.TTL; now {
		h.lease.Pause(nil)
	}
	return now
}

// rollback is the rollback of a session's part in a hold. part has the fence of the hold.
func (x *holds) rollback(h *sessionHold, s *table.Session) rollback {
	r := rollback{By: h.by.Node(h.Lock)}
	r.Key, r.Part = h.Lock, x.Part(s, h.Owner)
	r.Part.Fence = h.Fence
	return r
}

// Begin returns the record of a session, which is known from now on, and the key of the hold that a command of it is
// about. The owner is the session's own if the command names none. Requires no locks.
func (x *holds) Begin(s *contract.Caller, lock, owner string) (*holdSession, table.Key) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.beginLocked(s, lock, owner)
}

// beginLocked is Begin. Requires holds.mu.
func (x *holds) beginLocked(s *contract.Caller, lock, owner string) (*holdSession, table.Key) {
	c := x.sessions[s.ID]
	if c == nil {
		c = &holdSession{ID: s.ID, Conn: s.Session}
		c.Name, c.Losses, c.Tag, c.Held = script.Default(x.UUID, s.Token), s.Losses, c, s.Held
		x.sessions[s.ID] = c
	}
	return c, table.Key{Lock: lock, Owner: cmp.Or(owner, c.Name)}
}

// Part is what a call of a session writes about its part in a lock of that owner: the number of the call and, if it is
// not the owner's only session, its name.
func (x *holds) Part(s *table.Session, owner string) script.Part {
	p := script.Part{Owner: owner, Request: x.NextRequest()}
	if owner != s.Name {
		p.Session = s.Name
	}
	return p
}

// NextRequest returns the number of a call. The numbers grow, also for a session that moves to another engine.
func (x *holds) NextRequest() int64 { return x.Requests.Add(1) }

// Step tells the ledger of events, and carries out the effects. Requires no locks.
func (x *holds) Step(event func(l *table.Ledger)) {
	x.mu.Lock()
	event(x.ledger)
	told := x.settleLocked()
	x.mu.Unlock()
	x.tell(told)
}

// settleLocked carries out the effects of the ledger. It returns the loss that is to be told without locks; nil: there
// is none. Requires holds.mu.
func (x *holds) settleLocked() (told *table.Loss) {
	effects := x.ledger.Effects()
	for i := range effects {
		f := &effects[i]
		h := holdOf(f.Hold)
		switch f.Op {
		case table.Track:
			h.lease = x.Watchdog.Track(h.entry(), f.SentAt)
		case table.Pause:
			h.lease.Pause(nil)
		case table.Resume:
			if !h.lease.Resume(f.SentAt, h.entry()) {
				h.lease = x.Watchdog.Track(h.entry(), f.SentAt)
			}
		case table.Continue:
			h.lease.Continue()
		case table.Shorten:
			h.lease.Shorten(f.SentAt, h.TTL)
		case table.Forget:
			h.lease.Forget()
			x.endedLocked(h, f.End)
		case table.Tell:
			told = f.Loss
		}
	}
	x.ledger.Done(effects)
	x.count.Store(int64(x.ledger.Len()))
	return told
}

// endedLocked tells metrics and observers of the end of a hold. Requires holds.mu.
func (x *holds) endedLocked(h *sessionHold, end table.End) {
	now := x.Calls.Clock.Now()
	held := now.Sub(h.Since)
	by, outcome := observe.ByRelease, observe.Released
	switch {
	case h.Reason() == string(watchdog.ReasonExpired):
		by, outcome = observe.ByExpiry, observe.Lost
	case h.IsLost():
		by, outcome = observe.ByLoss, observe.Lost
	case end.HungUp:
		by, outcome = observe.ByDisconnect, observe.HungUp
	}
	if x.OnEnd != nil {
		x.OnEnd(by, held)
	}
	if !x.Told.Wants(observe.Hold, held) {
		return
	}
	x.Told.Ended(observe.Ending{
		At: now, Kind: observe.Hold, Key: h.Lock, By: observe.Party{Owner: h.Owner, Addr: end.Client.Addr, Name: end.Client.Name},
		Took: held, Outcome: outcome, Reason: h.Reason(), Fence: h.Fence, Sync: h.Sync,
	})
}

// Holder is the owner that holds a lock by a client of this engine, with its client. The zero value: none is known.
// Requires no locks of this package.
func (x *holds) Holder(lock string) observe.Party {
	x.mu.Lock()
	defer x.mu.Unlock()
	h := x.ledger.Holder(lock)
	if h == nil {
		return observe.Party{}
	}
	c := h.Client()
	return observe.Party{Owner: h.Owner, Addr: c.Addr, Name: c.Name}
}

// Keeps reports whether the session has a part in the hold of that lock and owner. An empty owner is the session's own.
// Requires no locks.
func (x *holds) Keeps(session uint64, lock, owner string) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	c := x.sessions[session]
	if c == nil {
		return false
	}
	h := x.ledger.Find(table.Key{Lock: lock, Owner: cmp.Or(owner, c.Name)})
	return h != nil && c.Has(h)
}

// Leave forgets a session without holds, and reports whether the session is unknown now. Requires no locks.
func (x *holds) Leave(session uint64) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	if c := x.sessions[session]; c != nil && c.Holding() > 0 {
		return false
	}
	delete(x.sessions, session)
	return true
}

// Empty reports whether no session is known and no lock is held. Requires no locks.
func (x *holds) Empty() bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	return len(x.sessions)+x.ledger.Len() == 0
}

// Len is the number of holds.
func (x *holds) Len() int { return int(x.count.Load()) }

// List is a Source of the holds, without their waiters. It walks backwards: the last hold, which takes the place of one
// that ends, has been seen already. Requires no locks.
func (x *holds) List(slice []lockInfo, end int) ([]lockInfo, int) {
	now := x.Calls.Clock.Now()
	x.mu.Lock()
	defer x.mu.Unlock()
	held := x.ledger.List()
	if end < 0 || end > len(held) {
		end = len(held)
	}
	begin := max(0, end-listSlice)
	for _, entry := range held[begin:end] {
		h := holdOf(entry)
		i := lockInfo{
			Key: h.Lock, Owner: h.Owner, Holds: h.Count, Fence: h.Fence,
			TTL: max(0, h.lease.Deadline().Sub(now).Milliseconds()), Client: contract.ClientInfo(h.Client()),
			Since: h.Since, Fixed: h.Fixed,
		}
		slice = append(slice, i)
	}
	return slice, begin
}

// tell announces a loss: to metrics, to the log, to the holders by a push, to subscribers by a channel. nil: there is
// nothing to tell. It leaves the work to a job. Requires no locks.
func (x *holds) tell(l *table.Loss) {
	if l == nil {
		return
	}
	if x.OnLost != nil {
		x.OnLost(l.Reason)
	}
	x.Announce.Tell(lossReport{
		Key: l.Key.Lock, Owner: l.Key.Owner, Fence: l.Fence, Reason: l.Reason, Expired: l.Reason == string(watchdog.ReasonExpired), Published: l.Reason == string(reasonForced),
		Held: x.Calls.Clock.Now().Sub(l.Since), Client: contract.ClientInfo(l.Client),
		Push: func(push []byte) {
			for _, c := range l.To {
				s := c.Tag.(*holdSession).Conn
				x.Calls.Guard.Do(s, func() { s.Push(push) })
			}
		},
	})
}

// Doubt notes that the answer to an acquire or a release of the session was lost. A copy may reach Redis at any time,
// so the session's fields stay. Requires no locks.
func (x *holds) Doubt(s *holdSession) {
	x.mu.Lock()
	s.Doubted = true
	x.mu.Unlock()
}
