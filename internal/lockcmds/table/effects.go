package table

import (
	"slices"
	"time"
)

// LeaseOp is what an effect asks for.
type LeaseOp uint8

// The effects.
const (
	Track    LeaseOp = iota // watch the lease, which counts from SentAt
	Pause                   // no renewal begins until Resume or Continue
	Resume                  // ends a Pause: the lease was set anew, by a command that was sent at SentAt
	Continue                // ends a Pause: the lease goes on as it was
	Shorten                 // a command that was sent at SentAt may have set the lease to the present, shorter TTL; it ends no Pause
	Forget                  // the hold has ended: its lease is watched no more
	Tell                    // tell the sessions of a loss
)

// LeaseEffect is what the caller does after an event, in this order. No event has more than one Tell.
type LeaseEffect struct {
	Op     LeaseOp
	Hold   *Hold
	SentAt time.Time // of Track, Resume and Shorten
	Loss   *Loss     // of Tell
	End    End       // of Forget
}

// End says how a hold has ended. The zero value: by its releases.
type End struct {
	Client Client // the client of the hold, as in Hold.Client
	HungUp bool   // the last client that held the lock has gone; the lease may go on in Redis
}

// Loss is the report of one lost hold.
type Loss struct {
	Key    Key
	Fence  int64
	Reason string
	Since  time.Time  // when the command was sent that acquired the lock
	Client Client     // the first of the clients that held it for the owner
	To     []*Session // that had holds
}

// Effects returns the effects of the events since the last call. Done takes the slice for the next time.
func (l *Ledger) Effects() []LeaseEffect {
	effects := l.effects
	l.effects = nil
	return effects
}

// keptLeaseEffects is how long a slice of effects may be that is used again: a burst must not keep its memory.
const keptLeaseEffects = 256

// Done takes the slice of Effects for the next time. It keeps no hold alive: names may have a megabyte.
func (l *Ledger) Done(effects []LeaseEffect) {
	if l.effects == nil && cap(effects) <= keptLeaseEffects {
		clear(effects)
		l.effects = effects[:0]
	}
}

func (l *Ledger) effect(f LeaseEffect) { l.effects = append(l.effects, f) }

func (l *Ledger) goOn(h *Hold) { l.effect(LeaseEffect{Op: Continue, Hold: h}) }

// ReasonGone is the reason of a loss of which Redis's answer tells.
const ReasonGone = "gone"

// Lost ends a hold that is not ours any more. The session that learns it by its own reply is left out. certain: the
// releases that are on their way cannot have ended it.
func (l *Ledger) Lost(h *Hold, reason string, certain bool, except *Session) {
	h.lost, h.reason = true, reason
	loss := &Loss{Key: h.Key, Fence: h.Fence, Reason: reason, Since: h.Since, Client: h.Client()}
	for _, o := range h.holders {
		if o.Session != except && o.Holds > 0 { // a session without holds has lost none; if its release is on its way, the reply tells it
			loss.To = append(loss.To, o.Session)
		}
	}
	l.Drop(h)
	if h.givenUp() && !certain { // the answers to the releases say whether they came in time
		h.untold = loss
		return
	}
	l.tell(loss)
}

// tell reports a loss.
func (l *Ledger) tell(loss *Loss) {
	for _, s := range loss.To {
		s.Losses.Add(loss.Key.Lock, loss.Key.Owner, loss.Fence)
	}
	l.effect(LeaseEffect{Op: Tell, Loss: loss})
}

// tellUntold reports a loss that was not told because releases were on their way, when one of them has been answered
// and the others cannot have ended the hold.
func (l *Ledger) tellUntold(r *Release, a HoldAnswer, reply Reply) {
	h := r.Hold
	if h == nil || h.untold == nil {
		return
	}
	switch a.Status {
	case HoldInDoubt:
		h.doubts++
	case Freed:
		h.untold = nil
		return
	case StillHeld:
		h.Count = a.Holds
	case NotDone, NotHolder, OtherGrant:
	}
	if reply == LostLease {
		h.untold.To = slices.DeleteFunc(h.untold.To, func(s *Session) bool { return s == r.By })
	}
	if loss := h.untold; !h.givenUp() && len(loss.To) > 0 {
		h.untold = nil
		l.tell(loss)
	}
}

// KnowsLoss reports that the session has lost this lock, and forgets it: the answer is to be LostLease, and nothing may
// be sent. Redis may have the key for an instant more, or for the same owner by another session. A session that was
// told of the loss must not act on it unawares.
func (l *Ledger) KnowsLoss(s *Session, k Key) bool {
	return l.holds.find(k) == nil && s.Losses.Forget(k.Lock, k.Owner)
}

// tellLost replaces the reply if the lock was lost while the command was on its way, or the session has lost it before
// and was not told by a reply yet.
func (l *Ledger) tellLost(s *Session, k Key, lost bool, reply Reply) Reply {
	if s.Losses.Forget(k.Lock, k.Owner) || lost || s.Losses.Vague() {
		return LostLease
	}
	return reply
}
