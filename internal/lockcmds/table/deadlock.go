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
// lock for the next owner: these are not the same. A waiter for one of several permits needs the end of any of them. An
// owner waits for itself in one case: it has a permit and asks for the lock exclusively or shared, or it holds that and
// asks for a permit.

// searchLimit bounds one search, in holds. A circle beyond it is not found.
const searchLimit = 256

// Deadlock returns the holds of a circle that the wait of w closes: that of its lock, that for which the owner of this
// one waits, and so on up to one of the waiter's own. nil: there is none.
func (t *Table) Deadlock(w *Waiter) []*Hold {
	if w.queue == nil {
		return nil
	}
	left := searchLimit
	return t.circle(w, w, nil, &left)
}

// MayBeStuck reports whether w may be on a circle over several proxies: its session waits for the owner for which it
// holds locks, and none of them ends by itself. A session that holds a lock waits with one command at most.
func (t *Table) MayBeStuck(w *Waiter) bool {
	if w.queue == nil || w.Owner != w.By.Name || !w.Kind.Reenters() {
		return false
	}
	held := 0
	for _, h := range w.By.holds {
		switch {
		case h.Owner != w.Owner:
		case h.Fixed, !h.Until.IsZero():
			return false
		case h.Kind.Reenters():
			held++
		}
	}
	return held > 0
}

// circle searches from one waiter on for the holds of the last one's owner. path leads to it.
func (t *Table) circle(w, last *Waiter, path []*Hold, left *int) []*Hold {
	for _, h := range t.locks[w.queue.names.Key].holds(*left) {
		*left--
		s := h.session()
		switch {
		case h.Owner == w.Owner && h.Kind.Reenters() == w.Kind.Reenters(),
			s == nil, s.waits == nil, s.waits.Owner != h.Owner, h.Fixed, !h.Until.IsZero():
			continue
		case h.Kind == w.Kind && (h.Kind.Shares() || !h.Kind.Reenters()):
			continue // what is in the way is another waiter, which may leave, or one of several permits
		case slices.ContainsFunc(path, func(before *Hold) bool { return before.session() == s }):
			continue
		}
		if w.Ahead && s.waits.Ahead && s.waits.queue == w.queue {
			continue // of two holders of a shared lock that wait for it alone Redis refuses the second
		}
		if s.waits == last {
			return append(path, h)
		}
		if found := t.circle(s.waits, last, append(path, h), left); found != nil || *left <= 0 {
			return found
		}
	}
	return nil
}

// holds lists the holds of a lock in the order of their fences; nil: there are more than limit.
func (l lock) holds(limit int) (all []*Hold) {
	if l.latest != nil {
		all = append(all, l.latest)
	}
	if l.others == nil {
		return all
	}
	for _, line := range l.others.byFence {
		if len(all)+line.Len() > limit {
			return nil
		}
		all = line.AppendTo(all)
	}
	slices.SortStableFunc(all, func(a, b *Hold) int { return cmp.Compare(a.Fence, b.Fence) })
	return all
}

// session is the one session that has all holds of h; nil: several have, or another proxy may have some.
func (h *Hold) session() (s *Session) {
	for i := range h.parts {
		switch o := &h.parts[i]; {
		case o.Holds == 0:
		case s != nil || o.Holds != h.Count:
			return nil
		default:
			s = o.Session
		}
	}
	return s
}
