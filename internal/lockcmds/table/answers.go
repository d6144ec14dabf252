package table

import "time"

// HoldStatus is what Redis has answered, or why there is no answer.
type HoldStatus uint8

// The statuses.
const (
	NotDone     HoldStatus = iota // refused or not sent: nothing has happened
	HoldInDoubt                   // sent, and not answered
	Freed                         // the last hold was released; the lock may have another owner by now
	StillHeld                     // the owner holds the lock, after a release or an extension
	NotHolder                     // the owner does not hold the lock
	OtherGrant                    // the owner holds the lock by another grant than the one that was named
)

// HoldAnswer is the outcome of a release or an extension.
type HoldAnswer struct {
	Status   HoldStatus
	Fence    int64     // of the owner's grant
	Holds    int64     // that the owner has left
	SentAt   time.Time // before the first copy was sent: that one may have set the lease
	Repeated bool      // an earlier copy of the command may have been executed, or may still be
}

// Reply is what the client is told.
type Reply uint8

// The replies.
const (
	Failure   Reply = iota // as the status says: Redis's refusal, not sent, or in doubt
	Unknown                // in doubt, though a copy was answered
	Yes                    // released for good, or extended
	Left                   // released, and holds are left
	LostLease              // the session has lost the lock
	NotHeld                // the owner does not hold the lock
	Newer                  // none yet: the command is for a later grant of the owner, and is to be sent again for it
)

// Grant is Redis's word that an owner holds a lock.
type Grant struct {
	By      *Session
	Key     Key
	Fence   int64
	Count   int64 // holds of the owner
	SentAt  time.Time
	TTL     time.Duration
	Fixed   bool
	MaxHold time.Duration // the limit of renewals; 0: none
	Grace   time.Duration // as in Holder
	Client  Client
	Paused  *Hold // whose lease the acquire has paused; nil: none
}

// Deepens reports whether an acquire that was sent to deepen the grant of that fence still can: the session has a part
// in it.
func (l *Ledger) Deepens(s *Session, k Key, fence int64) bool {
	h := l.holds.find(k)
	return h != nil && h.Fence == fence && h.HolderOf(s) != nil
}

// Deepening begins an acquire by which a session may deepen the hold. Granted ends it, or NotDeepened, or the end of
// the hold.
func (l *Ledger) Deepening(h *Hold) { h.acquiring++ }

// NotDeepened ends an acquire that has not deepened the hold, and the Pause of its lease.
func (l *Ledger) NotDeepened(h *Hold) {
	if l.Knows(h) {
		h.acquiring--
		l.settle(h, h.unused())
	}
}

// MayLast notes that a call may have set the lease to that length: it was rolled back, or Redis has executed it before
// the latest one or behind it.
func (l *Ledger) MayLast(h *Hold, ttl time.Duration) { h.Most = max(h.Most, ttl) }

// Granted records a grant. An older hold of the same owner is lost by it. nil: another session of this owner has
// released this grant and acquired again meanwhile. If the grant is of the paused hold, its Pause is ended.
func (l *Ledger) Granted(g *Grant) (h *Hold, fresh bool) {
	h = l.holds.find(g.Key)
	// The owner's only session has one acquire at a time. A smaller fence says that a server which does not know the
	// hold, and whose clock is behind, has become the primary.
	back := h != nil && h.Fence > g.Fence && g.Key.Owner == g.By.Name && g.SentAt.After(h.countedAt)
	if h != nil && h.Fence > g.Fence && !back {
		return nil, false
	}
	if h != nil && (h.Fence < g.Fence || back) {
		l.Lost(h, ReasonGone, false, nil)
		h = nil
	}
	if g.Paused == h && h != nil {
		h.acquiring--
	}
	fresh = h == nil
	if fresh {
		h = l.add(g.Key, g.Fence)
		h.Since = g.SentAt
	}
	newer := h.counted(g.Count, g.SentAt)
	if newer {
		h.lasts(g.TTL)
		h.Fixed = g.Fixed
		if g.MaxHold > 0 {
			h.Until = g.SentAt.Add(g.MaxHold)
		} else {
			h.promise(g.SentAt)
		}
	}
	l.join(h, g)
	switch {
	case !newer: // the lease is as a later command of another session has set it, unless Redis has executed that one first
		l.MayLast(h, g.TTL)
		if g.Paused == h {
			l.goOn(h)
		}
	case fresh:
		l.effect(LeaseEffect{Op: Track, Hold: h, SentAt: g.SentAt})
	default:
		if g.Paused != h {
			l.effect(LeaseEffect{Op: Pause, Hold: h}) // Resume ends exactly one
		}
		l.effect(LeaseEffect{Op: Resume, Hold: h, SentAt: g.SentAt})
	}
	return h, fresh
}

// join notes how many holds the session has after an acquire: for its own owner all that Redis says.
func (l *Ledger) join(h *Hold, g *Grant) {
	o := h.part(g.By)
	o.Grace, o.Client = g.Grace, g.Client
	if o.Holds++; g.Key.Owner == g.By.Name {
		o.Holds = g.Count
	}
	g.By.Losses.Forget(h.Lock, h.Owner)
}

// visited notes that the session has a field in the lock's hash: its end removes the field.
func (l *Ledger) visited(h *Hold, s *Session) {
	if l.Knows(h) && !s.left {
		h.part(s)
	}
}

// part returns a session's part in the hold. A new one has no holds.
func (h *Hold) part(s *Session) *Holder {
	if o := h.HolderOf(s); o != nil {
		return o
	}
	if h.holders == nil {
		h.holders = h.first[:0]
	}
	h.holders = append(h.holders, Holder{Session: s, Grace: -1})
	s.gets(h)
	return &h.holders[len(h.holders)-1]
}

// InDoubt is for a command that sets the lease of h to that length, and whose answer was lost. The command may have
// been executed, and a copy may still be. So the shorter lease counts until an answer sets another one. nil: no hold is
// known.
func (l *Ledger) InDoubt(h *Hold, ttl time.Duration, sentAt time.Time) {
	if h == nil || !l.Knows(h) {
		return
	}
	l.MayLast(h, ttl)
	if ttl < h.TTL {
		h.TTL = ttl
		l.effect(LeaseEffect{Op: Shorten, Hold: h, SentAt: sentAt})
	}
}

// Extended takes the answer to an extension of h to that length. The extension has paused the lease of h; nil: it found
// no hold.
func (l *Ledger) Extended(s *Session, k Key, h *Hold, ttl time.Duration, a HoldAnswer) Reply {
	lost := h != nil && h.lost
	if h != nil && !l.Knows(h) {
		h = nil
	}
	switch {
	case a.Status == NotDone || a.Status == HoldInDoubt:
		if a.Status == HoldInDoubt {
			l.InDoubt(h, ttl, a.SentAt)
		}
		l.settle(h, false)
		return Failure
	case a.Status == StillHeld:
		if h == nil {
			return l.tellLost(s, k, lost, Yes)
		}
		if h.Fence == a.Fence {
			l.visited(h, s)
		}
		if h.Fence == a.Fence && h.counted(a.Holds, a.SentAt) {
			h.lasts(ttl)
			h.promise(a.SentAt)
			l.effect(LeaseEffect{Op: Resume, Hold: h, SentAt: a.SentAt})
		} else {
			l.MayLast(h, ttl)
			l.goOn(h)
		}
		s.Losses.Forget(k.Lock, k.Owner)
		return Yes
	case a.Status == OtherGrant && k.Owner != s.Name && (h == nil || h.Fence < a.Fence || a.Fence == 0):
		// Another session of the owner has acquired the lock again. An older grant says that a server which does not
		// know the later ones has become the primary.
		l.settle(h, true)
		return Newer
	case h != nil && !h.givenUp():
		held := h.IsHeldBy(s)
		l.Lost(h, ReasonGone, true, s)
		if !held {
			return NotHeld // other sessions have lost it
		}
		return LostLease
	case h != nil:
		l.Drop(h)
		return NotHeld
	}
	return l.tellLost(s, k, lost, NotHeld)
}
