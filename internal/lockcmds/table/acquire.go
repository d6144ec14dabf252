package table

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file has what an acquire is to the holds: the one that it deepens, and its grant. waiter.go has its wait.

// Begin begins an acquire: it finds the hold that the acquire is to deepen.
func (t *holders) Begin(w *Waiter) {
	h := t.Held(w)
	if w.deepens = h; h != nil {
		if o := h.PartOf(w.By); o != nil {
			w.Had, w.Before = h, *o
		}
	}
}

// Held is the hold of the acquire's owner, if the acquire deepens it; nil: it makes a grant of its own.
func (t *holders) Held(w *Waiter) *Hold {
	if !w.Kind.Reenters() {
		return nil
	}
	return t.locks.find(w.Key)
}

// Anew makes a new call of an acquire: its grant cannot be used, or the one that it was to deepen has ended. The name is
// one that has not been used.
func (t *holders) Anew(w *Waiter, name string) {
	t.NotDeepened(w)
	w.Had, w.Before, w.Kind = nil, Part{}, w.Asked
	if w.Name == "" {
		w.Owner = name
	} else {
		w.Name = name
	}
}

// Named reports whether the waiter is woken by name: in its turn, or with others of its owner.
func (w *Waiter) Named() bool { return w.Fair || w.OfNamed() }

// OfNamed reports whether other sessions may hold the lock for the same owner.
func (w *Waiter) OfNamed() bool { return w.Name != "" && w.Kind.Reenters() }

// Deepens reports whether sessions here hold the lock for its owner.
func (w *Waiter) Deepens() bool { return w.deepens != nil }

// DeepensOnly reports whether the acquire deepens the grant of its session or none: the owner is the session's own.
func (w *Waiter) DeepensOnly() bool { return w.Had != nil && w.By.Owns(w.Owner) }

// HoldsShared reports whether sessions here hold the lock shared for an owner that wants it for itself.
func (w *Waiter) HoldsShared() bool {
	h := w.deepens
	return h != nil && h.Kind.Shares() && !w.Kind.Shares() && h.IsHeld()
}

// Lasts is how long the hold that the acquire is to deepen may last without a renewal; 0: there is none, or it has ended.
func (w *Waiter) Lasts() time.Duration {
	if w.deepens == nil || !w.deepens.known {
		return 0
	}
	return w.deepens.TTL
}

// Part is what the acquire writes about its session's part in the lock.
func (w *Waiter) Part() script.Part {
	p := w.By.PartIn(w.Key)
	p.Name, p.Holds, p.By = w.Name, w.Before.Holds+1, w.Before.Acquire
	if w.Had != nil {
		p.Fence = w.Had.Fence
	}
	return p
}

// PartIn is what a call of a session writes about the session's part in a hold: also its name, if it is not the owner's
// only session.
func (s *Session) PartIn(k Key) script.Part {
	p := script.Part{Owner: k.Owner, Shared: k.Kind.Shares()}
	if !s.Owns(k.Owner) {
		p.Session = s.Name
	}
	return p
}

// Deepening says that an acquire may be sent that deepens a hold. Until its outcome, the lease of the hold is paused by
// the caller, and releases do not end the hold. It returns the hold; nil: there is none.
func (t *holders) Deepening(w *Waiter) *Hold {
	if w.deepens != nil {
		w.deepening = true
		w.deepens.acquiring++
	}
	return w.deepens
}

// NotDeepened ends what Deepening has begun, if the acquire has not deepened the hold.
func (t *holders) NotDeepened(w *Waiter) {
	if h := w.deepens; h != nil && w.deepening && h.known {
		h.acquiring--
		t.settle(h, h.unused())
	}
	w.deepens, w.deepening = nil, false
}

// HoldIsOver ends the hold that the acquire was to deepen: Redis has answered that its owner does not have the lock.
func (t *holders) HoldIsOver(w *Waiter) {
	if h := w.deepens; h != nil {
		w.deepens = nil
		t.Gone(h)
	}
}

// Overwritten says that the key holds something else than a lock. It reports whether the session held a lock there, which
// is lost.
func (t *holders) Overwritten(w *Waiter) (lost bool) {
	lost = t.KnowsLoss(w.By, w.Key, 0)
	if h := w.deepens; h != nil && h.known {
		w.deepens = nil
		t.Lost(h, ReasonGone, false, w.By)
		lost = true
	}
	return lost
}

// Doubt says that the answer to a call of the acquire was lost, which asked for a lease of that length at that moment.
// The owner may have a hold by now: then the lease of the hold may be that one.
func (t *holders) Doubt(w *Waiter, lease time.Duration, sentAt time.Time) {
	t.InDoubt(t.Held(w), lease, sentAt)
}

// Verdict says whether a client can use a grant.
type Verdict uint8

// The verdicts.
const (
	Usable     Verdict = iota // the hold is recorded, and its lease is watched
	TooLate                   // the lease has ended meanwhile
	ToldLost                  // the session was told that it lost this grant while the acquire was on its way
	ClientGone                // the session has ended
)

// Granted records a grant of an acquire now, unless its client cannot use it: then the caller rolls it back. A grant may
// prove an older hold of the same owner lost. The caller sets the fields of g that Redis has told, and the terms.
func (t *holders) Granted(w *Waiter, now time.Time, g *Grant) Verdict {
	switch {
	case w.By.left:
		return ClientGone
	case w.Had != nil && g.Fence == w.Had.Fence && !t.hasPart(w, g.Fence):
		// Our clock judges earlier than Redis's. A client that was not listening would count on its earlier holds if it
		// got the same fence again; a client that hears of the loss behind the reply would give up a lock that is renewed
		// for it.
		return ToldLost
	case now.Sub(g.SentAt) >= g.TTL:
		return TooLate
	}
	if g.Kind != nil {
		w.Kind = g.Kind
	}
	g.By, g.Key, g.Streak, g.Limit, g.Paused = w.By, w.Key, w.streak, w.Limit, w.deepens
	if w.OfNamed() {
		g.Acquire = w.Name
	}
	if h := t.record(g); h != nil && h == w.deepens {
		w.deepens = nil // the pause has ended
	}
	return Usable
}

// hasPart reports whether the session of the acquire still has a part in the grant with that fence.
func (t *holders) hasPart(w *Waiter, fence int64) bool {
	h := t.locks.find(w.Key)
	return h != nil && h.Fence == fence && h.PartOf(w.By) != nil
}
