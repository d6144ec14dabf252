package lockcmds

import (
	"strings"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// This file has the sessions of one lock engine, and the leases of the holds in the table.
//
//	acquire ──► Begin ──► Part: written by the script ──► Granted ──► table ──► effects: the watchdog watches the lease
//	               └──► Doubt: the answer is lost ──► table ──► effects: the lease is shortened
//	UNLOCK, EXTENDLOCK ──► step: an event of the table ─────────────────┘  │
//	watchdog ──► onLost, FORCEUNLOCK ──► Forced ──► table ──► effects: the lease ends, announcer.Tell
//	                                      └──► RollBack, if Redis may have a part of the hold left
//	the client hangs up ──► Ended ──► table ──► effects: the lease ends; RollBack applies GRACE
//
// Invariants:
//   - The lease of each hold of the table is watched. A hold that has ended is not renewed.
//   - A renewal does not overlap with a re-entry or extension that may shorten the lease: the lease is paused around
//     these. A release waits for no renewal: Redis refuses a renewal behind it by owner and fence.
//   - GRACE ends a grant in which the session that ends alone has taken part.
//   - After a session was told that it lost a grant of its own owner, it never gets the same fence again.
//   - No call leaves an owner a shorter lease than the owner was promised.

// clientSession is the record of one session.
type clientSession struct {
	table.Session // Name is "<UUID>:<token>"; Name, Each, Losses and Memory are immutable, keeper.mu guards the rest

	ID   uint64           // immutable
	Conn contract.Session // immutable

	// Facts of the session's latest lock command, written with the session lock and keeper.mu held. A reader holds one of
	// them. The command itself needs none until its reply.
	Client  table.Client
	Library string // as in contract.Caller
	Proto   int

	// Guarded by keeper.mu.
	ended    bool     // its client has gone, or gets no more
	forsaken bool     // it was the proxy that closed the connection: GRACE does not apply
	asks     *acquire // its acquire in progress; nil: there is none
}

// redissonLease is the lease of Redisson's clients, unless they have changed it.
const redissonLease = 30 * time.Second

// entry is the hold as the watchdog knows it. Redisson's clients set the TTL of a lock that they share with others to
// their own lease, so a longer one is kept: it is set again before theirs can end.
func (e *keeper) entry(h *table.Hold) watchdog.Entry {
	entry := watchdog.Entry{
		Of: h, TTL: h.TTL, Until: h.Until, Fixed: h.Fixed, Group: watchdog.Group{By: e.client.Node(h.Lock), Kind: h.Kind},
	}
	if theirs := min(e.opts.Lease, redissonLease); h.Kind.Shares() && h.TTL > theirs {
		entry.Kept = theirs / 3
	}
	return entry
}

// nextLease is the lease that a renewal of the hold gives now: MAXHOLD limits it. Requires keeper.mu.
func (e *keeper) nextLease(h *table.Hold) time.Duration {
	if h.Until.IsZero() {
		return h.TTL
	}
	return max(time.Millisecond, min(h.TTL, h.Until.Sub(e.opts.Clock.Now())))
}

// rollback is the rollback of a session's part in a hold, by the fence of the hold.
func (e *keeper) rollback(h *table.Hold, o table.Part) rollback {
	r := rollback{Kind: kindOf(h.Key)}
	r.Key, r.Part = h.Lock, o.Session.PartIn(h.Key)
	r.Part.Fence, r.Part.Name = h.Fence, o.Acquire
	return r
}

// mostOfName is how many bytes of a client's name its locks show. The client chooses the name, and each of its locks has
// it in its note and in every list.
const mostOfName = 128

// beginLocked returns the record of a session, which is known from now on, and the name of the hold that a command of
// it is about. Requires keeper.mu.
func (e *keeper) beginLocked(s *contract.Caller, cmd *grammar.Command) (*clientSession, table.Key) {
	c := e.sessions[s.ID]
	if c == nil {
		c = &clientSession{ID: s.ID, Conn: s.Session}
		c.Name, c.Losses, c.Tag, c.Memory = script.SessionName(e.opts.UUID, s.Token), s.Losses, c, s.Memory
		c.Each = e.defaults().Reentry.each(s.Announced)
		e.sessions[s.ID] = c
		if c.Each {
			e.opts.Reentries.NoteEach(s.Info, s.Library)
		}
	}
	c.Client, c.Library, c.Proto = s.Info, s.Library, s.Proto
	if name := &c.Client.Name; len(*name) > mostOfName {
		*name = strings.Clone((*name)[:mostOfName])
	}
	return c, e.keyLocked(c, cmd)
}

// hasEnded reports whether the client of a session has gone. Requires no locks.
func (e *keeper) hasEnded(s *clientSession) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return s.ended
}

// nextName returns the number in the name of an acquire, which no other one has had.
func (e *keeper) nextName() int64 { return e.opts.Names.Add(1) }

// endedLocked tells metrics and the log of the end of a hold. Requires keeper.mu.
func (e *keeper) endedLocked(h *table.Hold, end table.End) {
	held := e.opts.Clock.Now().Sub(h.Since)
	by := ByRelease
	switch {
	case h.Reason() == string(watchdog.ReasonExpired):
		by = ByExpiry
	case h.IsLost():
		by = ByLoss
	case end.HungUp:
		by = ByDisconnect
	}
	if e.opts.Events.Ended != nil {
		e.opts.Events.Ended(by, held)
	}
	e.logHold(party{h.Owner, end.Client, h.Note}, h.Lock, held, by)
}

// holderLocked is the owner that holds a lock by a client of this engine, with its client. The zero value: none is
// known. Requires keeper.mu.
func (e *keeper) holderLocked(lock string) party {
	h := e.table.Latest(lock)
	if h == nil {
		return party{}
	}
	return party{h.Owner, h.Client(), h.Note}
}
