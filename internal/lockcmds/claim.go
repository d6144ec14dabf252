package lockcmds

import (
	"context"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// claim is the part of one acquire in the table, from its start to its end. All copies and attempts of the
// acquire write the same Part, until Anew. The acquire calls one method at a time.
type claim struct {
	e   *Engine
	s   *clientSession // that acquires
	key table.Key      // of the hold that it asks for
	// The kind that it has asked for. An exclusive hold may be deepened whatever that is.
	asked table.Kind

	hold    *table.Hold // that the acquire is to deepen; nil: none
	sent    bool        // pauseLocked was called: until the outcome, the hold is not renewed, and releases do not end it
	acquire string      // its name, for a named owner
	fence   int64       // of the grant that it deepens; 0: none
	by      string      // the acquire of the session's part in that grant, of a named owner; empty: it has none
	holds   int64       // that the session has afterwards, if Redis still has that grant
	again   bool        // it deepens that grant or none: the owner is the session's own
	undone  bool        // its hold in a grant of others was released. Guarded by Engine.mu

	// earlier is the hold that the session has a part in before the acquire; nil: none. The table forgets the part when
	// the session ends.
	earlier      *table.Hold
	earlierGrace time.Duration // GRACE of that part; negative: none
}

// claimLocked begins an acquire. Requires the session lock and Engine.mu.
func (e *Engine) claimLocked(s *contract.Caller, cmd *grammar.Command) claim {
	session, key := e.beginLocked(s, cmd)
	c := claim{e: e, s: session, key: key, asked: askedKind(cmd), holds: 1}
	if cmd.Owner != "" {
		c.acquire = session.OwnerFor(e.nextName())
	}
	if h := e.table.Hold(key); h != nil && key.Kind.Reenters() {
		c.hold = h
		if o := h.PartOf(&session.Session); o != nil {
			c.again = session.Owns(key.Owner)
			c.fence, c.holds, c.by, c.earlier, c.earlierGrace = h.Fence, o.Holds+1, o.Acquire, h, o.Grace
		}
	}
	return c
}

// holdsSharedLocked reports whether sessions of this proxy hold the lock shared for an owner that wants it for itself.
// Requires Engine.mu.
func (c *claim) holdsSharedLocked() bool {
	return c.hold != nil && c.hold.Kind.Shares() && !c.key.Kind.Shares() && c.hold.IsHeld()
}

// Deepens reports whether sessions of this proxy hold the lock for the owner already.
func (c *claim) Deepens() bool { return c.hold != nil }

// Lasts is how long the hold that the acquire is to deepen may last without a renewal; 0: there is none, or it has
// ended meanwhile. Requires no locks.
func (c *claim) Lasts() time.Duration {
	h := c.hold
	if h == nil {
		return 0
	}
	c.e.mu.Lock()
	defer c.e.mu.Unlock()
	if !c.e.table.Knows(h) {
		return 0
	}
	return h.TTL
}

// Reenters reports whether the session itself has holds that it has not begun to release.
func (c *claim) Reenters() bool { return c.holds > 1 }

// Part is what the acquire writes about its session's part in the lock.
func (c *claim) Part() script.Part {
	p := partOf(&c.s.Session, c.key)
	p.Name, p.Fence, p.Holds, p.By = c.acquire, c.fence, c.holds, c.by
	return p
}

// name is that of the acquire, for a named owner of a lock; empty: the owner is the session's own, or it asks for a permit.
func (c *claim) name() string {
	if !c.key.Kind.Reenters() {
		return ""
	}
	return c.acquire
}

// pauseLocked is called before an acquire of that lease is sent: the hold that it is to deepen is not renewed from here
// on, nor dropped for want of holds, until grantedLocked or NotDeepened. It reports whether the acquire may be sent at
// once, as the function pauseLocked does. Requires the session lock and Engine.mu.
func (c *claim) pauseLocked(lease time.Duration) (now bool) {
	h := c.hold
	if h == nil {
		return true
	}
	c.sent = true
	c.e.table.Deepening(h)
	return pauseLocked(h, lease)
}

// Doubt notes that the answer to a call of the acquire was lost, which asked for a lease of that length at the moment
// sentAt. The owner may have a hold here by now: then the lease of the hold may be that one. The caller carries out the
// effects. Requires Engine.mu.
func (c *claim) Doubt(lease time.Duration, sentAt time.Time) {
	c.e.table.InDoubt(c.heldLocked(), lease, sentAt)
}

// heldLocked is the hold that the acquire deepens if the owner has one by now; nil: it makes a grant of its own.
// Requires Engine.mu.
func (c *claim) heldLocked() *table.Hold {
	if !c.key.Kind.Reenters() {
		return nil
	}
	return c.e.table.Hold(c.key)
}

// NotDeepened ends what pauseLocked has begun, if the acquire has not deepened the hold. Requires no locks.
func (c *claim) NotDeepened() { c.e.step(func(*table.Table) { c.notDeepenedLocked() }) }

// notDeepenedLocked is NotDeepened. The caller carries out the effects. Requires Engine.mu.
func (c *claim) notDeepenedLocked() {
	if h := c.hold; h != nil && c.sent {
		c.e.table.NotDeepened(h)
	}
	c.hold = nil
}

// Anew makes a new call of the acquire, because its grant cannot be used, or the one that it was to deepen has ended. An
// owner of the session's own gets a new name. Requires no locks.
func (c *claim) Anew() {
	if c.hold != nil {
		c.NotDeepened()
	}
	c.fence, c.holds, c.by, c.again, c.undone, c.earlier = 0, 1, "", false, false, nil
	name := &c.acquire
	if c.key.Kind = c.asked; c.acquire == "" {
		name = &c.key.Owner
	}
	*name = c.s.OwnerFor(c.e.nextName())
}

// HoldIsOver ends the hold that the acquire was to deepen: Redis has answered that its owner does not have the lock.
// Requires no locks.
func (c *claim) HoldIsOver() {
	h := c.hold
	if h == nil {
		return
	}
	c.hold = nil
	c.e.gone(h)
}

// gone ends a hold that Redis does not have any more. Requires no locks.
func (e *Engine) gone(h *table.Hold) {
	e.step(func(t *table.Table) {
		if t.Knows(h) {
			t.Lost(h, table.ReasonGone, false, nil)
		}
	})
}

// Overwritten says that the key holds something else than a lock. It reports whether the session held a lock there,
// which is lost. Requires no locks.
func (c *claim) Overwritten() (lost bool) {
	c.e.step(func(t *table.Table) {
		lost = t.KnowsLoss(&c.s.Session, c.key, 0)
		if h := c.hold; h != nil && t.Knows(h) {
			c.hold = nil
			t.Lost(h, table.ReasonGone, false, &c.s.Session)
			lost = true
		}
	})
	return lost
}

// verdict says whether a client can use a grant.
type verdict uint8

// The verdicts.
const (
	verdictUsable verdict = iota // the hold is recorded, and its lease is watched
	verdictLate                  // the lease has ended meanwhile
	verdictLost                  // the session was told that it lost this grant while the acquire was on its way
	verdictEnded                 // the session has ended
)

// grantedLocked records a grant now, and has its lease watched, unless the client cannot use it: then the caller rolls
// it back. exclusively: the hold is exclusive, whatever was asked for. A grant may prove an older hold of the same
// owner lost. Requires Engine.mu, and the session lock or that the session has ended.
func (c *claim) grantedLocked(now time.Time, g *table.Grant, exclusively bool) verdict {
	t := c.e.table
	switch {
	case c.s.ended:
		return verdictEnded
	case c.fence != 0 && g.Fence == c.fence && !t.Deepens(&c.s.Session, c.key, g.Fence):
		// Our clock judges earlier than Redis's. A client that was not listening would count on its earlier holds if it
		// got the same fence again; a client that hears of the loss behind the reply would give up a lock that is renewed
		// for it.
		return verdictLost
	case now.Sub(g.SentAt) >= g.TTL:
		return verdictLate
	}
	if exclusively {
		c.key.Kind = exclusive{}
	}
	g.By, g.Key, g.Acquire, g.Paused = &c.s.Session, c.key, c.name(), c.hold
	if h := t.Record(g); h != nil && h == c.hold {
		c.hold = nil // the table has ended the pause
	}
	c.e.settleLocked()
	return verdictUsable
}

// RollBack undoes what the acquire has done, or may still do. fence is of the grant; 0: the answer to a call is lost. count
// is how many holds the owner had then. The session keeps the holds of which its client was told, and their lease. If
// the session has ended, GRACE applies to them. tried is called behind the first attempt; nil: not of interest. Requires
// no locks.
func (c *claim) RollBack(fence, count int64, lease time.Duration, tried func(ok bool)) {
	if c.name() != "" {
		c.rollBackNamed(fence, count, lease, tried)
		return
	}
	e, part := c.e, c.Part()
	part.Fence = fence
	r := rollback{Kind: kindOf(c.key), Limit: max(lease, e.opts.Lease), Late: fence == 0, Tried: tried}
	e.mu.Lock()
	h := c.heldLocked()
	switch {
	case h != nil && fence == 0:
		r.Until, r.Gone = h.Lease.Deadline(), func() { e.gone(h) }
	case h != nil && fence == h.Fence:
		if o := h.PartOf(&c.s.Session); o != nil {
			part.Holds = o.Holds
		}
		back := script.Release{Key: c.key.Lock, Part: part, Lease: e.nextLease(h)}
		e.mu.Unlock()
		e.lower(h, back, r.Limit, tried)
		return
	case h == nil && c.s.ended && c.Reenters() && !c.earlier.IsLost() && (fence == 0 || fence == c.fence):
		// The table does not know the part of a session that has ended.
		if c.earlierGrace < 0 || c.s.forsaken {
			r.Until = c.earlier.Lease.Deadline()
		} else {
			r.Keep, r.After = c.earlierGrace, &c.earlier.Lease
		}
	}
	e.mu.Unlock()
	r.Key, r.Part = c.key.Lock, part
	e.calls.RollBack(r)
}

// lower has Redis count the holds again that a living session has, and set their lease. Requires no locks.
func (e *Engine) lower(h *table.Hold, back script.Release, limit time.Duration, tried func(ok bool)) {
	e.calls.Retry(cleanup{
		What: "roll a hold back", Key: back.Key, Limit: limit,
		Task: func(ctx context.Context) error {
			a, err := runFor(ctx, e.client, back.Call(), back.Decode)
			if err == nil && a.Status == script.StillHeld { // the acquire may have made the lease longer
				keep := script.Drop{Key: back.Key, Part: back.Part, Keep: back.Lease}
				_, err = runFor(ctx, e.client, keep.Call(), script.DecodeDropped)
			} else if err == nil {
				e.gone(h)
			}
			if tried != nil {
				tried(err == nil)
				tried = nil
			}
			return err
		},
	})
}

// rollBackNamed is RollBack for a named owner. A grant in which others take part is known to have one hold too many:
// that is released once, because a copy would release another one. The grant of the acquire itself is ended.
func (c *claim) rollBackNamed(fence, count int64, lease time.Duration, tried func(ok bool)) {
	e := c.e
	part := partOf(&c.s.Session, c.key)
	part.Name, part.Fence = c.acquire, fence
	e.mu.Lock()
	least, once := time.Duration(0), fence != 0 && count > 1
	if h := c.heldLocked(); h != nil { // the others keep their lease
		least = max(time.Millisecond, h.Lease.Deadline().Sub(e.opts.Clock.Now()))
	}
	again := once && c.undone // the session has ended, and the answer of the replicas comes behind that
	c.undone = c.undone || once
	e.mu.Unlock()
	switch {
	case again:
		if tried != nil {
			tried(true)
		}
	case once:
		r := script.Release{Key: c.key.Lock, Part: part, Lease: least}
		e.calls.Background(jobs.CleanUp, func() {
			_, err := runFor(e.life, e.client, r.Call(), r.Decode)
			if tried != nil {
				tried(err == nil)
			}
		})
	case c.by != "" && fence == 0: // it may have added a hold, which ends with the lease
		if tried != nil {
			tried(true)
		}
	default:
		e.calls.RollBack(rollback{
			Drop: script.Drop{Key: c.key.Lock, Part: part}, Kind: kindOf(c.key),
			Limit: max(lease, e.opts.Lease), Late: fence == 0, Tried: tried,
		})
	}
}
