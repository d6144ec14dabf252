package locks

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
	"time"
)

// hold is one grant as its client could rely on it: from the return of the acquire to the last moment at which the
// lock was certainly still its own. That moment is proved in one of two ways:
//
//   - by a lease: the lock cannot end before the call that set the lease, plus its length, unless the client gave it
//     back or asked for a shorter lease, or the end of the connection shortens it (GRACE), or the owner holds it through another
//     proxy as well, which may have set the lease itself: by a renewal, or a command without a reply;
//   - by a witness: a later command, which Redis executed after its call, found the lock to be the client's.
//
// What an unplanned failover may have taken away again (see loss) proves nothing for the time after it.
//
// Everything is measured on one clock and rounded to the safe side, so holds that overlap and may not be beside each other are
// a lock granted too often, and never a false alarm.
type hold struct {
	key      string
	fence    int64
	from, to int64
	until    int64 // it had certainly ended by then
	first    op
	graced   bool
	watched  bool         // renewed by the watchdog all the time
	setters  map[int]bool // the proxies that the owner has used, and whether one may have set the lease unknown to the owner
	lease    int64        // proved by lease; 0: not
	witness  int64        // proved by a witness
	end      op           // what ended it, if anything did
	losses   []loss
	revived  bool // its owner had later grants before: a release was lost
	over     bool
}

func (h *hold) String() string {
	return fmt.Sprintf("%s fence %d [%.3f, %.3f] of %v", h.key, h.fence, seconds(h.from), seconds(h.to), h.first)
}

// holdsOf reads the holds out of one worker's commands, which followed each other.
func holdsOf(ops []op, losses []loss) []*hold {
	var all []*hold
	current := make(map[[2]string]*hold)
	newest := make(map[[2]string]int64)
	for _, o := range ops {
		k := [2]string{o.Key, o.hold()}
		h := current[k]
		switch {
		case o.acquire() && o.Out == acquired && (h == nil || h.fence != o.Fence):
			h = &hold{key: o.Key, fence: o.Fence, from: o.Return, first: o, watched: true, setters: make(map[int]bool), losses: losses}
			h.revived = o.Fence < newest[k] && slices.ContainsFunc(losses, func(l loss) bool { return l.concerns(o.Key) && l.from < o.Return })
			newest[k] = max(newest[k], o.Fence)
			h.set(o)
			current[k] = h
			all = append(all, h)
		case h == nil || h.over:
		case o.Out == strange || o.Out == refused || o.Out == deadlock:
		case o.acquire() || o.Verb == "EXTENDLOCK":
			switch {
			case o.Out == acquired || o.Out == extended:
				h.set(o)
			case o.Out == notHeld:
				h.over, h.end = true, o
			case o.Out == unknown || o.ended():
				h.lease = min(h.lease, o.Call+o.Lease)
				h.watched = false
				h.setters[o.Proxy] = true
				h.cut(o)
			default: // nothing happened
			}
		case o.Verb == "LOCKINFO":
			if o.Out == mine {
				h.seen(o)
			}
		case o.Verb == "UNLOCK":
			h.unlock(o)
		}
	}
	for _, h := range all {
		if h.to = max(h.lease, h.witness); h.over {
			h.to = min(h.to, h.end.Call)
		}
		h.until = h.latest(ops)
	}
	return all
}

// latest is when the lock had certainly ended for a worker with these commands: by its release, or a lease after it did something else.
func (h *hold) latest(ops []op) int64 {
	if h.over && h.end.Out != unknown {
		return h.end.Return
	}
	lease, last := int64(0), 0
	for i, o := range ops {
		if o.Key == h.key && o.hold() == h.first.hold() && o.N >= h.first.N {
			lease, last = max(lease, o.Lease), i
		}
	}
	if last+1 < len(ops) {
		return ops[last+1].Call + lease
	}
	return math.MaxInt64
}

// set is a lease that Redis has set at some time after the call. It may be shorter than the one before.
func (h *hold) set(o op) {
	h.graced = h.graced || o.Graced
	h.watched = h.watched && !o.Fixed && o.Lease == h.first.Lease
	h.seen(o)
	lease := o.Call + o.Lease
	for _, l := range h.losses {
		if l.mayTake(o) { // then the lease before counts
			lease = min(lease, max(l.from, h.lease))
		}
	}
	h.lease = lease
	if h.graced {
		h.lease = 0
	}
	h.setters[o.Proxy] = !o.Fixed
	h.cut(o)
}

// cut says that the lease of a named owner proves nothing if another proxy may drop the owner's last holds when it has lost contact.
func (h *hold) cut(o op) {
	for proxy, may := range h.setters {
		if may && (proxy != o.Proxy || o.Out == unknown && len(h.setters) > 1) {
			h.lease = 0
		}
	}
}

// seen is a command that found the lock to be the owner's.
func (h *hold) seen(o op) {
	at := o.Call
	for _, l := range h.losses {
		if l.mayTake(o) {
			at = min(at, l.from)
		}
	}
	h.witness = max(h.witness, at)
}

func (h *hold) unlock(o op) {
	switch o.Out {
	case still:
		h.seen(o)
	case released:
		h.seen(o)
		h.over, h.end = true, o
	case unknown, notHeld:
		h.over, h.end = true, o
	default: // nothing happened
	}
}

// rounding is what Redis's whole milliseconds may cost.
const rounding = int64(time.Millisecond)

// overlaps returns the holds of a key that clients could rely on at one moment, though they may not be beside each other.
func overlaps(all []*hold) (bad []string) {
	for beside := range together(all) {
		if tooMany(beside) {
			bad = append(bad, fmt.Sprint(beside))
		}
	}
	return bad
}

// mostAtOnce is how many holds of a key there were beside each other, by key.
func mostAtOnce(all []*hold) map[string]int {
	most := make(map[string]int)
	for beside := range together(all) {
		most[beside[0].key] = max(most[beside[0].key], len(beside))
	}
	return most
}

// together yields for each hold those of its key that clients could rely on at the moment from which it counts.
func together(all []*hold) iter.Seq[[]*hold] {
	return func(yield func([]*hold) bool) {
		sorted := slices.SortedFunc(slices.Values(all), func(a, b *hold) int { return cmp.Compare(a.from, b.from) })
		byKey := make(map[string][]*hold)
		for _, h := range sorted {
			if h.to-rounding <= h.from {
				continue
			}
			byKey[h.key] = append(slices.DeleteFunc(byKey[h.key], func(b *hold) bool {
				return b.to-rounding <= h.from || b.fence == h.fence && b.first.hold() == h.first.hold()
			}), h)
			if !yield(byKey[h.key]) {
				return
			}
		}
	}
}

// tooMany reports whether these holds may not be beside each other. Each was granted when those with smaller fences were.
func tooMany(beside []*hold) bool {
	slices.SortStableFunc(beside, func(a, b *hold) int { return cmp.Compare(a.fence, b.fence) })
	for i, h := range beside {
		like := 1
		for _, before := range beside[:i] {
			if before.first.apart(h.first) {
				return true
			}
			if before.first.Kind == h.first.Kind {
				like++
			}
		}
		if like > h.first.most() {
			return true
		}
	}
	return false
}
