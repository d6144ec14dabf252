package lockcmds

import (
	"time"

	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/lockcmds/owners"
	"lockproxy/internal/lockcmds/script"
	"lockproxy/internal/lockcmds/turns"
	"lockproxy/internal/watchdog"
)

// holdKey names a hold: at most one owner holds a lock in Redis, but an old hold may still be known here when the next
// owner's answer arrives.
type holdKey struct{ key, owner string }

// hold is a lock that sessions of this engine hold for one owner, by one grant. All fields are guarded by Engine.mu.
type hold struct {
	holdKey
	fence     int64
	count     int64         // acquires not yet released, as Redis said
	countedAt time.Time     // when the command was sent that it said so to
	ttl       time.Duration // length of the lease
	fixed     bool          // PX or EX: never renewed
	until     time.Time     // MAXHOLD; zero: none
	lease     *watchdog.Lease
	by        calls.Own // the connections of the identity that acquired it last: renewals and GRACE need its rights
	holders   []holder  // the sessions that hold it; it is renewed while there is one

	explicit bool // OWNER was given: the owner may hold it through other proxies too
	chain    turns.Chain
	// Releases by sessions here that Redis has not confirmed: a loss may be no more than them.
	releasing int64 // on their way
	doubts    int64 // sent, and not answered

	lost  bool // it ended as a loss
	place int  // in Engine.held
}

// givenUp reports whether the hold may have ended by the releases of those who held it: they need not be told.
func (h *hold) givenUp() bool { return h.releasing+h.doubts >= h.count }

// counted notes how many holds there are, as Redis answered a command sent at that instant. Several sessions of one owner
// may hear the answers in another order; an older one says nothing about the lease either.
func (h *hold) counted(n int64, sentAt time.Time) (newer bool) {
	if sentAt.Before(h.countedAt) {
		return false
	}
	h.count, h.countedAt, h.doubts = n, sentAt, 0
	return true
}

// heldLocks is the holds of an engine in no order, so that they can be walked in slices. It is guarded by Engine.mu.
type heldLocks []*hold

func (l *heldLocks) add(h *hold) {
	h.place = len(*l)
	*l = append(*l, h)
}

// remove has the last one take the place of h.
func (l *heldLocks) remove(h *hold) {
	last := len(*l) - 1
	moved := (*l)[last]
	(*l)[h.place], moved.place = moved, h.place
	(*l)[last] = nil
	*l = (*l)[:last]
}

// holder is one session's part in a hold.
type holder struct {
	c     *client
	holds int64         // as the session writes them: its acquires less its releases, those on their way included
	grace time.Duration // the most that is left of the lease when the session ends, if no other session holds it; negative: all
	info  contract.ClientInfo
}

// client is what the engine keeps of one session. All fields but s, owner and lost are guarded by Engine.mu.
type client struct {
	s     contract.Session
	owner string // the session's own: "<UUID>:<token>"
	ended bool
	ask   *waiter // the acquire in progress
	// releasing is how many of its releases are on their way, or in doubt: a copy of them may still be sent.
	releasing int
	holds     map[*hold]struct{}
	// lost remembers, until it is told by -LOSTLEASE or taken again, what this session held and lost. It guards itself.
	lost *losses.Set
}

// entry is the hold as the watchdog knows it.
func (h *hold) entry() watchdog.Entry {
	return watchdog.Entry{
		Key: h.key, Owner: h.owner, Fence: h.fence, TTL: h.ttl, Until: h.until, Fixed: h.fixed, Group: h.by.Node(h.key),
	}
}

// clientLocked returns what is kept of a session, from its first lock command on.
func (e *Engine) clientLocked(s contract.Caller) *client {
	c := e.clients[s.ID]
	if c == nil {
		c = &client{s: s.Session, owner: owners.Default(e.opts.UUID, s.Token), lost: s.Losses}
		e.clients[s.ID] = c
	}
	return c
}

// promiseLocked puts the limit of an earlier MAXHOLD off to the end of the lease that was set by a command sent at that instant:
// a client may rely on what it was given last.
func (h *hold) promiseLocked(sentAt time.Time) {
	if end := sentAt.Add(h.ttl); !h.until.IsZero() && end.After(h.until) {
		h.until = end
	}
}

// holderLocked returns a session's part in the hold; nil: it has none.
func (h *hold) holderLocked(c *client) *holder {
	for i := range h.holders {
		if h.holders[i].c == c {
			return &h.holders[i]
		}
	}
	return nil
}

// joinLocked notes how many holds c has after an acquire.
func (h *hold) joinLocked(c *client, holds int64, grace time.Duration, info contract.ClientInfo) {
	o := h.holderLocked(c)
	if o == nil {
		h.holders = append(h.holders, holder{})
		o = &h.holders[len(h.holders)-1]
	}
	*o = holder{c: c, holds: holds, grace: grace, info: info}
	if c.holds == nil {
		c.holds = make(map[*hold]struct{})
	}
	c.holds[h] = struct{}{}
	c.lost.Forget(h.key, h.owner)
}

// partOf is what a session writes about its part in a lock of that owner: the number of the call and, if it is not the owner's only
// session, its name.
func (e *Engine) partOf(c *client, owner string) script.Part {
	p := script.Part{Owner: owner, Request: e.nextRequest()}
	if owner != c.owner {
		p.Session = c.owner
	}
	return p
}

// nextRequest is the number of a call. It grows, also for a session that moves to another engine.
func (e *Engine) nextRequest() int64 { return e.opts.Requests.Add(1) }

// dropLocked forgets a hold, because it was released, lost, or given up.
func (e *Engine) dropLocked(h *hold) {
	if e.holds[h.holdKey] == h {
		delete(e.holds, h.holdKey)
		e.held.remove(h)
		e.holding.Add(-1)
	}
	for _, o := range h.holders {
		delete(o.c.holds, h)
	}
	h.holders = nil
	h.lease.Forget()
}
