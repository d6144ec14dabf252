package table

import (
	"cmp"
	"slices"
)

// This file finds waits that would never end, because each owner in a circle waits for a lock that the next one holds:
//
//	waiter ──► a hold of its lock, of another owner ──► the waiter of that owner ──► …
//
// Only a wait that begins can close a circle, so a search begins there. These are on no circle, because they may end by
// themselves: a hold whose lease is not renewed without end, one of a named owner in which several sessions or another
// proxy may have a part, and an owner that does not wait. A session may hold a lock for one owner and wait for another
// lock for the next owner: these are not the same. A waiter for one of several permits needs the end of any of them. A
// shared waiter may stand behind another waiter, which leaves. An owner waits for itself if it has the only permit, and
// asks for it again.

// searchLimit bounds one search, in holds that it looks at. A circle beyond it is not found.
const searchLimit = 256

// Deadlock returns the holds of a circle that the wait of w closes: that of its lock, that for which the owner of this
// one waits, and so on up to one of the waiter's own. nil: there is none.
func (t *Table) Deadlock(w *Waiter) []*Hold {
	if w.queue == nil {
		return nil
	}
	t.searches++
	s := search{t: t, last: w, left: searchLimit}
	return s.from(w)
}

// BlocksItself reports whether w waits for the end of holds that its own session has taken, and that do not end by
// themselves. If it waits for the end of any permit, they must be all.
func (t *Table) BlocksItself(w *Waiter) bool {
	if w.queue == nil {
		return false
	}
	key := w.queue.names.Key
	mine, permits := w.By.holds, 0
	if len(mine) > searchLimit {
		mine = t.holders.locks[key].holds(searchLimit)
	}
	for _, h := range mine {
		switch {
		case h.Lock != key, h.Fixed, !h.Until.IsZero(), !w.By.Has(h):
		case h.Kind == w.Kind && !h.Kind.Reenters():
			if permits++; permits >= w.Limit {
				return true
			}
		case h.Kind == w.Kind && h.Kind.Shares(): // what is in the way is another waiter
		case h.Owner == w.Owner:
		default:
			return true
		}
	}
	return false
}

// search is one search for a circle.
type search struct {
	t    *Table
	last *Waiter // where the circle ends
	path []*Hold // from there to the waiter that is looked at
	left int     // how many holds may still be looked at
}

// from searches from one waiter on for the holds of the last one's owner. Each session is looked at once.
func (s *search) from(w *Waiter) []*Hold {
	for _, h := range s.t.holders.locks[w.queue.names.Key].holds(s.left) {
		if s.left--; s.left < 0 {
			return nil
		}
		next := h.blocked(w)
		switch {
		case next == nil, next.By.searched == s.t.searches:
			continue
		case next == s.last:
			return append(s.path, h)
		}
		next.By.searched = s.t.searches
		s.path = append(s.path, h)
		if found := s.from(next); found != nil {
			return found
		}
		s.path = s.path[:len(s.path)-1]
	}
	return nil
}

// blocked returns the waiter whose end the waiter w needs, because its owner has the hold h; nil: there is none, or h
// may end without it.
func (h *Hold) blocked(w *Waiter) *Waiter {
	s, permits := h.session(), h.Kind == w.Kind && !h.Kind.Reenters()
	switch {
	case s == nil, s.waits == nil, !s.areOne(s.waits.Owner, h.Owner), h.Fixed, !h.Until.IsZero():
		return nil
	case permits && w.Limit > 1:
		return nil // any of several permits will do
	case !permits && h.Owner == w.Owner:
		return nil
	case h.Kind == w.Kind && h.Kind.Shares():
		return nil // what is in the way is another waiter, which may leave
	}
	return s.waits
}

// holds lists the holds of a lock in the order of their fences; nil: there are more than limit.
func (l lock) holds(limit int) (all []*Hold) {
	if l.others != nil && len(l.others.byFence) >= limit {
		return nil
	}
	if l.latest != nil {
		all = append(all, l.latest)
	}
	if l.others == nil {
		return all
	}
	for _, line := range l.others.byFence {
		all = line.AppendTo(all)
	}
	slices.SortStableFunc(all, func(a, b *Hold) int { return cmp.Compare(a.Fence, b.Fence) })
	return all
}

// session is the one session that has all holds of h; nil: several have, or another proxy may have some.
func (h *Hold) session() *Session {
	if len(h.parts) != 1 || h.parts[0].Holds != h.Count {
		return nil
	}
	return h.parts[0].Session
}
