package table

import (
	"hash/maphash"
	"time"
)

// This file decides which ended holds are told of as losses, and when, and knows the latest of them.

// ReasonGone is the reason of a loss of which Redis's answer tells.
const ReasonGone = "gone"

// lossBook is the losses of a table that may be none, and the latest that were told.
type lossBook struct {
	*effects

	lost     lostGrants
	suspects suspects
}

// tell reports a loss.
func (b *lossBook) tell(loss *Loss) {
	b.note(loss)
	b.emit(Effect{Op: Tell, Loss: loss})
}

// note has a later command of the sessions, or by the fence, be answered with the loss.
func (b *lossBook) note(loss *Loss) {
	b.lost.add(loss)
	for _, s := range loss.To {
		s.Losses.Add(s.lossOf(loss.Key), loss.Fence)
	}
}

// A hold that Redis does not have any more may have been released through another proxy, whose message is on its way.
// So such a loss is told a moment later:
//
//	Lost ──Suspect──► SuspectsDue ──► Tell
//	   └──► ReleasedElsewhere: it is none

// lossDelay is that moment; at most twice as long, and until the messages are in that Redis has published by then. The
// script that releases a grant publishes the message before Redis can answer that it does not have the grant. So only
// the ways through two connections differ, and in a cluster the way between two servers.
const lossDelay = 40 * time.Millisecond

// suspects are losses that may be none. Some wait for the present delay to end, the others for the one after it.
type suspects struct {
	byGrant     map[lossName]*Loss
	next, later []*Loss
	timed       bool // SuspectsDue follows
}

func (b *lossBook) suspect(loss *Loss) {
	x := &b.suspects
	b.note(loss)
	if x.byGrant == nil {
		x.byGrant = make(map[lossName]*Loss)
	}
	x.byGrant[grantName(loss.Key.Lock, loss.Fence)] = loss
	if x.timed {
		x.later = append(x.later, loss)
		return
	}
	x.next, x.timed = append(x.next, loss), true
	b.emit(Effect{Op: Suspect, Delay: lossDelay})
}

// SuspectsDue tells of losses that no message has explained, of some at a time.
func (b *lossBook) SuspectsDue() {
	x := &b.suspects
	n := min(len(x.next), sliceSize)
	for _, loss := range x.next[:n] {
		if name := grantName(loss.Key.Lock, loss.Fence); x.byGrant[name] == loss {
			delete(x.byGrant, name)
			b.emit(Effect{Op: Tell, Loss: loss})
		}
	}
	switch x.next = x.next[n:]; {
	case len(x.next) > 0:
		b.emit(Effect{Op: Suspect})
	case len(x.later) > 0:
		x.next, x.later = x.later, nil
		b.emit(Effect{Op: Suspect, Delay: lossDelay})
	default:
		*x = suspects{} // a burst must not keep its memory
	}
}

// Suspected is the loss of a grant that is not told yet; nil: there is none.
func (b *lossBook) Suspected(lock string, fence int64) *Loss {
	if len(b.suspects.byGrant) == 0 {
		return nil
	}
	return b.suspects.byGrant[grantName(lock, fence)]
}

// ReleasedElsewhere says that the grant of a suspected loss was released.
func (b *lossBook) ReleasedElsewhere(loss *Loss) {
	n := grantName(loss.Key.Lock, loss.Fence)
	delete(b.suspects.byGrant, n)
	b.lost.remove(n)
	for _, s := range loss.To {
		if k := s.lossOf(loss.Key); !k.Kind.Reenters() || s.Losses.Fence(k) == loss.Fence {
			s.Losses.Forget(k)
		}
	}
}

// mostLostGrants is how many lost grants are known, at least.
const mostLostGrants = 4096

// lostGrants is the latest grants that were lost, for commands that name a grant by its fence on any connection, each
// with the hash of the name of the session that had it alone.
type lostGrants struct{ recent, older map[lossName]uint64 }

func grantName(lock string, fence int64) (n lossName) {
	for i, seed := range lossSeeds {
		n[i] = maphash.Comparable(seed, struct {
			lock  string
			fence int64
		}{lock, fence})
	}
	return n
}

func (l *lostGrants) add(loss *Loss) {
	if len(l.recent) == mostLostGrants {
		l.older, l.recent = l.recent, nil
	}
	if l.recent == nil {
		l.recent = make(map[lossName]uint64)
	}
	by := uint64(0)
	if len(loss.To) == 1 && loss.To[0].Owns(loss.Key.Owner) {
		by = maphash.String(lossSeeds[0], loss.To[0].Name)
	}
	l.recent[grantName(loss.Key.Lock, loss.Fence)] = by
}

func (l *lostGrants) remove(n lossName) {
	delete(l.recent, n)
	delete(l.older, n)
}

// WasLost reports whether the grant with that fence is one of the latest that sessions here have lost. If it was this
// session's own permit, one loss fewer is left to be told.
func (b *lossBook) WasLost(s *Session, k Key, fence int64) bool {
	if len(b.lost.recent) == 0 {
		return false
	}
	n := grantName(k.Lock, fence)
	by, lost := b.lost.recent[n]
	if !lost {
		by, lost = b.lost.older[n]
	}
	if lost && !k.Kind.Reenters() && by == maphash.String(lossSeeds[0], s.Name) {
		s.Losses.Forget(s.lossOf(k))
	}
	return lost
}
