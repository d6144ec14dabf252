package lockcmds

import (
	"slices"
	"time"

	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/lockcmds/owners"
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
	by        own      // the connections of the identity that acquired it last: renewals and GRACE need its rights
	holders   []holder // the sessions that hold it; it is renewed while there is one

	explicit bool // OWNER was given: the owner may hold it through other proxies too
	chain    turns.Chain
	// Releases by sessions here that Redis has not confirmed: a loss may be no more than them.
	releasing int64 // on their way
	doubts    int64 // sent, and not answered

	extending int   // EXTENDLOCKs on their way
	lost      bool  // it ended as a loss
	place     int   // in Engine.held
	parts     int64 // of its holders when it was dropped
}

// givenUp reports whether the hold may have ended by the releases of those who held it: they need not be told.
func (h *hold) givenUp() bool { return h.releasing+h.doubts >= h.count }

// counted notes how many holds there are, as Redis answered a command sent at that instant. Several sessions of one owner
// may hear the answers in another order; an older one says nothing about the lease either.
func (h *hold) counted(n int64, sentAt time.Time) (news bool) {
	if sentAt.Before(h.countedAt) {
		return false
	}
	h.count, h.countedAt, h.doubts = n, sentAt, 0
	return true
}

// holder is one session's part in a hold.
type holder struct {
	c     *client
	part  int64         // its acquires that were not released
	grace time.Duration // what may be left of the lease when it ends, if nobody else holds it; negative: all
	info  ClientInfo
}

// client is what the engine keeps of one session. All fields but s, owner and lost are guarded by Engine.mu.
type client struct {
	s     Session
	owner string // the session's own: "<UUID>:<token>"
	ended bool
	ask   *waiter // the acquire in progress
	holds map[*hold]struct{}
	// lost remembers, until it is told by -LOSTLEASE or taken again, what this session held and lost. It guards itself.
	lost *losses.Set
}

// asks reports whether an acquire of the session for that hold is on its way.
func (c *client) asks(k holdKey) bool { return c.ask != nil && holdKey{c.ask.key, c.ask.Owner} == k }

// entry is the hold as the watchdog knows it.
func (h *hold) entry() watchdog.Entry {
	return watchdog.Entry{
		Key: h.key, Owner: h.owner, Fence: h.fence, TTL: h.ttl, Until: h.until, Fixed: h.fixed, Group: h.by.Node(h.key),
	}
}

// clientLocked returns what is kept of a session, from its first lock command on.
func (e *Engine) clientLocked(s Caller) *client {
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

// joinLocked adds one acquire of c.
func (h *hold) joinLocked(c *client, grace time.Duration, info ClientInfo) {
	i := slices.IndexFunc(h.holders, func(o holder) bool { return o.c == c })
	if i < 0 {
		i = len(h.holders)
		h.holders = append(h.holders, holder{})
	}
	h.holders[i] = holder{c: c, part: h.holders[i].part + 1, grace: grace, info: info}
	if c.holds == nil {
		c.holds = make(map[*hold]struct{})
	}
	c.holds[h] = struct{}{}
	c.lost.Forget(h.key, h.owner)
}

// dropLocked forgets a hold, because it was released, lost, or given up.
func (e *Engine) dropLocked(h *hold) {
	if e.holds[h.holdKey] == h {
		delete(e.holds, h.holdKey)
		e.held.remove(h)
		e.holding.Add(-1)
	}
	for _, o := range h.holders {
		delete(o.c.holds, h)
		h.parts += o.part
	}
	h.holders = nil
	h.lease.Forget()
}
