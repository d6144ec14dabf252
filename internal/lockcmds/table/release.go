package table

import (
	"slices"
	"time"
)

// Release is one release on its way.
type Release struct {
	By      *Session
	Key     Key
	Named   int64         // the fence that the client has named; 0: none
	Hold    *Hold         // nil: no session of this proxy holds the lock for that owner
	Lowered bool          // the session had a hold, and has one fewer now
	Fence   int64         // to be sent; 0: any, because other sessions of the owner may have made a grant meanwhile
	Holds   int64         // that the session has left
	Lease   time.Duration // least lease that goes on if holds are left; 0: its TTL stays

	whole bool  // it ends the grant
	more  int64 // how many holds more it releases
}

// Release begins a release: it takes one hold off the session, if it has one, and pauses the lease.
//
// A renewal that is on its way, perhaps on a sick connection, is not waited for. Behind the release Redis refuses it by
// owner and fence, and what it says of a hold that is being released is no loss.
func (t *holders) Release(by *Session, k Key, named int64) Release {
	r := Release{By: by, Key: k, Named: named, Fence: named, Hold: t.Meant(by, k, named)}
	if r.Hold == nil {
		return r
	}
	t.emit(Effect{Op: Pause, Hold: r.Hold})
	r.Hold.releasing++
	r.Hold.unspare()
	o := r.Hold.PartOf(by)
	if o != nil {
		o.releasing++
	}
	if named != 0 && named != r.Hold.Fence {
		return r
	}
	if by.Owns(k.Owner) || !k.Kind.Reenters() {
		r.Fence = r.Hold.Fence
	}
	if o != nil && o.Holds > 0 {
		o.Holds--
		r.Holds, r.Lowered = o.Holds, true
	}
	return r
}

// ReleaseAll begins the release of all holds of a private hold, by its handle: another session has named the fence.
func (t *holders) ReleaseAll(h *Hold) Release {
	r := Release{By: h.parts[0].Session, Key: h.Key, Named: h.Fence, Hold: h, Fence: h.Fence, whole: true}
	t.emit(Effect{Op: Pause, Hold: h})
	h.releasing++
	h.ending++
	o := &h.parts[0]
	o.releasing++
	if o.Holds > 0 {
		r.Lowered, r.more = true, o.Holds-1
		o.Holds = 0
	}
	return r
}

// Released takes the answer to a release.
func (t *holders) Released(r *Release, a HoldAnswer) Reply {
	reply := t.released(r, a)
	if r.Hold != nil {
		r.Hold.spare()
	}
	t.tellUntold(r, a, reply)
	return reply
}

func (t *holders) released(r *Release, a HoldAnswer) Reply {
	h := r.Hold
	if h != nil {
		h.releasing--
		if r.whole {
			h.ending--
		}
		if o := h.PartOf(r.By); o != nil {
			o.releasing--
		}
	}
	lost := h != nil && h.lost && (r.Lowered || h.untold != nil && slices.Contains(h.untold.To, r.By))
	if h != nil && !t.Knows(h) {
		h = nil // lost or dropped meanwhile
	}
	if r.Lowered && (a.Status == Failed || a.Status == OtherGrant) {
		t.undoRelease(r)
	}
	switch {
	case a.Status == Failed:
		if h != nil {
			t.continueLease(h)
		} else if lost {
			return r.By.tellLost(r.Key, lost, Failure) // nothing was released, though the loss may be known
		}
		return Failure
	case a.Status == InDoubt: // a last release of the owner's only session is done in the end
		t.settle(h, r.Lowered && r.Holds == 0 && r.By.Owns(r.Key.Owner))
		return Failure
	case a.Status == Freed:
		t.freed(r, h, a.Fence)
		r.By.Regained(r.Key)
		return Yes
	case a.Status == Held:
		return t.stillHeld(r, h, lost, a)
	}
	// The owner's grant may also be an older one: a server that does not know the later ones has become the primary.
	over := h != nil && (a.Status == NotHolder || h.Fence < a.Fence || h.Fence == r.Fence)
	switch {
	case over && !h.givenUp():
		if !r.Lowered { // other sessions have lost it, or this one has named another fence
			t.Lost(h, ReasonGone, true, nil)
			return NotHeld
		}
		told := r.By
		if r.whole { // the reply tells another session
			told = nil
			t.undoRelease(r)
		}
		t.Lost(h, ReasonGone, true, told)
		return LostLease
	case over:
		t.Drop(h)
		return NotHeld
	}
	t.settle(h, false)
	return r.By.tellLost(r.Key, lost, NotHeld)
}

// freed ends the hold, because the owner's grant in Redis was of that fence: a later one says that other sessions have
// released the hold and acquired the lock again, an earlier one that a server which does not know the hold has become
// the primary. nil: there is none.
func (t *holders) freed(r *Release, h *Hold, fence int64) {
	switch {
	case h == nil:
	case 0 < fence && fence < h.Fence:
		t.Lost(h, ReasonGone, true, r.By)
	default:
		t.Drop(h)
	}
}

// stillHeld is Released with holds left.
func (t *holders) stillHeld(r *Release, h *Hold, lost bool, a HoldAnswer) Reply {
	reply := Left
	newer := h != nil && h.Fence == a.Fence && h.counted(a.Holds, a.SentAt)
	switch {
	case h != nil && h.Fence != a.Fence:
		t.freed(r, h, a.Fence)
	case h != nil && h.unused(): // the holds that are left are another proxy's, or Redisson's
		t.Drop(h)
	case newer && !h.Fixed:
		t.emit(Effect{Op: Resume, Hold: h, SentAt: a.SentAt})
	case h != nil:
		t.continueLease(h)
	case lost && r.Hold.Fence == a.Fence && r.Hold.releasing < a.Holds: // Redis judges later than our clock
		reply = r.By.tellLost(r.Key, lost, Left)
	}
	r.By.Regained(r.Key)
	return reply
}

// settle ends a hold, or the Pause of its lease. nil: there is none.
func (t *holders) settle(h *Hold, over bool) {
	switch {
	case h == nil:
	case over:
		t.Drop(h)
	default:
		t.continueLease(h)
	}
}

// undoRelease is for a release that did not happen.
func (t *holders) undoRelease(r *Release) {
	if !t.Knows(r.Hold) {
		return
	}
	if o := r.Hold.PartOf(r.By); o != nil {
		o.Holds += 1 + r.more
	}
}

// Ending begins the end of a grant by its handle: it pauses the lease, as Release does. nil: no session of this proxy
// has that grant.
func (t *holders) Ending(lock string, fence int64) *Hold {
	h := t.HoldByFence(lock, fence)
	if h == nil {
		return nil
	}
	t.emit(Effect{Op: Pause, Hold: h})
	h.ending++
	return h
}

// Ended takes the answer: the grant is over, which is no loss, or it was not ended. nil: Ending has found no hold.
func (t *holders) Ended(h *Hold, over bool) {
	switch {
	case h == nil:
		return
	case over:
		h.untold = nil
	}
	h.ending--
	if t.Knows(h) {
		t.settle(h, over)
	}
	t.tellIfKept(h)
}
