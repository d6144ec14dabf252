package table

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// Status is what Redis has answered, or why there is no answer.
type Status = script.Status

// The answers.
const (
	Busy       = script.Busy
	Held       = script.Held
	Freed      = script.Freed
	NotHolder  = script.NotHolder
	OtherGrant = script.OtherGrant
)

// The failures.
const (
	Refused Status = iota + OtherGrant + 1 // an error reply of Redis ends the attempt
	Failed                                 // refused or not sent: nothing has happened
	InDoubt                                // sent, and not answered
)

// HoldAnswer is the outcome of a release or an extension.
type HoldAnswer struct {
	Status Status
	Fence  int64     // of the owner's grant
	Holds  int64     // that the owner has left
	SentAt time.Time // before the command was sent
}

// Reply is what the client is told.
type Reply uint8

// The replies.
const (
	Failure   Reply = iota // as the status says: Redis's refusal, not sent, or not answered
	Yes                    // released for good, or extended
	Left                   // released, and holds are left
	LostLease              // the session has lost the lock
	NotHeld                // the owner does not hold the lock
)

// Grant is Redis's word that an owner holds a lock. Granted sets the fields behind Note.
type Grant struct {
	Kind    Kind // of the hold, if it is another one than was asked for; else nil
	Fence   int64
	Count   int64 // holds of the owner
	SentAt  time.Time
	TTL     time.Duration
	Fixed   bool
	MaxHold time.Duration // the limit of renewals; 0: none
	Grace   time.Duration // as in Part
	Client  Client
	Note    string // empty: none

	By      *Session
	Key     Key
	Streak  Streak // of the hand-over that has granted the lock
	Limit   int    // of a permit: how many may hold the lock
	Acquire string // the name of the acquire, for a named owner
	Paused  *Hold  // whose lease the acquire has paused; nil: none
}

// record records a grant. If its kind reenters, an older hold of the same owner is lost by it. nil: another session of
// this owner has released this grant and acquired again meanwhile. If the grant is of the paused hold, its Pause is
// ended.
func (t *holders) record(g *Grant) *Hold {
	var h *Hold
	if g.Key.Kind.Reenters() {
		h = t.locks.find(g.Key)
	}
	if h != nil && h.Fence > g.Fence {
		return nil
	}
	if h != nil && h.Fence < g.Fence {
		t.Lost(h, ReasonGone, false, nil)
		h = nil
	}
	if g.Paused == h && h != nil {
		h.acquiring--
	}
	fresh := h == nil
	if fresh {
		h = t.add(g.Key, g.Fence)
		h.Since, h.Streak, h.Limit = g.SentAt, g.Streak, g.Limit
	}
	if g.Note != "" {
		h.Note, h.Noted = g.Note, true
	}
	newer := h.counted(g.Count, g.SentAt)
	if newer {
		h.TTL, h.Fixed = g.TTL, g.Fixed
		if g.MaxHold > 0 {
			h.Until = g.SentAt.Add(g.MaxHold)
		} else {
			h.promise(g.SentAt)
		}
	}
	t.join(h, g)
	switch {
	case !newer: // the lease is as a later command of another session has set it, unless Redis has executed that one first
		if g.Paused == h {
			t.continueLease(h)
		}
	case fresh:
		t.emit(Effect{Op: Track, Hold: h, SentAt: g.SentAt})
	default:
		if g.Paused != h {
			t.emit(Effect{Op: Pause, Hold: h}) // Resume ends exactly one
		}
		t.emit(Effect{Op: Resume, Hold: h, SentAt: g.SentAt})
	}
	return h
}

// join notes how many holds the session has after an acquire: for its own owner all that Redis says.
func (t *holders) join(h *Hold, g *Grant) {
	o := h.part(g.By)
	o.Grace, o.Client = g.Grace, g.Client
	if o.Acquire == "" {
		o.Acquire = g.Acquire
	}
	if o.Holds++; g.By.Owns(g.Key.Owner) {
		o.Holds = g.Count
	}
	h.spare()
	g.By.Regained(h.Key)
}

// part returns a session's part in the hold. A new one has no holds.
func (h *Hold) part(s *Session) *Part {
	if o := h.PartOf(s); o != nil {
		return o
	}
	if h.parts == nil {
		h.parts = h.first[:0]
	}
	h.parts = append(h.parts, Part{Session: s, Grace: -1})
	s.gets(h)
	return &h.parts[len(h.parts)-1]
}

// InDoubt is for a command that sets the lease of h to that length, and whose answer was lost: it may have been
// executed, or may still be. So the shorter lease counts until an answer sets another one. nil: no hold is known.
func (t *holders) InDoubt(h *Hold, ttl time.Duration, sentAt time.Time) {
	if h == nil || !t.Knows(h) {
		return
	}
	if ttl < h.TTL {
		h.TTL = ttl
		t.emit(Effect{Op: Shorten, Hold: h, SentAt: sentAt})
	}
}

// Extended takes the answer to an extension of h to that length. The extension has paused the lease of h; nil: it found
// no hold.
func (t *holders) Extended(s *Session, k Key, h *Hold, ttl time.Duration, a HoldAnswer) Reply {
	lost := h != nil && h.lost
	if h != nil && !t.Knows(h) {
		h = nil
	}
	switch {
	case a.Status == Failed || a.Status == InDoubt:
		if a.Status == InDoubt {
			t.InDoubt(h, ttl, a.SentAt)
		}
		t.settle(h, false)
		return Failure
	case a.Status == Held:
		if h == nil && !lost { // the grant may have come while the extension was on its way
			if h = t.HoldByFence(k.Lock, a.Fence); h != nil && h.Key.name() == k.name() {
				t.emit(Effect{Op: Pause, Hold: h}) // Resume ends exactly one
			} else {
				h = nil
			}
		}
		if h == nil {
			return s.tellLost(k, lost, Yes)
		}
		switch {
		case h.Fence < a.Fence: // other sessions of the owner have released the hold, and acquired the lock again
			t.Drop(h)
		case h.Fence == a.Fence && h.counted(a.Holds, a.SentAt):
			h.TTL = ttl
			h.promise(a.SentAt)
			t.emit(Effect{Op: Resume, Hold: h, SentAt: a.SentAt})
		default:
			t.continueLease(h)
		}
		s.Regained(k)
		return Yes
	case h != nil && !h.givenUp():
		held := h.IsHeldBy(s)
		t.Lost(h, ReasonGone, true, s)
		if !held {
			return NotHeld // other sessions have lost it
		}
		return LostLease
	case h != nil:
		t.Drop(h)
		return NotHeld
	}
	return s.tellLost(k, lost, NotHeld)
}
