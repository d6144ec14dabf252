package table

// lock is one lock: the holds of it, and its waiters. Redis knows one holder, so a lock has rarely a second hold here:
// one that has ended in Redis, without an answer that says so. All calls cost O(1), because a client chooses how many
// of those there are.
type lock struct {
	latest *Hold            // the hold with the highest fence when it was added; nil: it has ended, or there is none
	others map[string]*Hold // the other ones by owner
	queue  *Queue           // nil: no client waits here
}

// locks is the locks that are held or waited for here, by key.
type locks map[string]lock

// set keeps a lock while it has a hold or a queue.
func (x locks) set(key string, l lock) {
	if l.latest == nil && len(l.others) == 0 && l.queue == nil {
		delete(x, key)
	} else {
		x[key] = l
	}
}

func (x locks) find(k Key) *Hold {
	l := x[k.Lock]
	if h := l.latest; h != nil && h.Owner == k.Owner {
		return h
	}
	return l.others[k.Owner]
}

// add adds a hold. There is none of the same owner.
func (x locks) add(h *Hold) {
	l := x[h.Lock]
	other := l.latest
	if other == nil || other.Fence < h.Fence {
		l.latest = h
	} else {
		other = h
	}
	if other != nil {
		if l.others == nil {
			l.others = map[string]*Hold{}
		}
		l.others[other.Owner] = other
	}
	x[h.Lock] = l
}

// remove removes a hold that the lock has.
func (x locks) remove(h *Hold) {
	l := x[h.Lock]
	if l.latest == h {
		l.latest = nil
	} else {
		delete(l.others, h.Owner)
	}
	x.set(h.Lock, l)
}

// setQueue sets the wait queue of a lock; nil: it has none any more.
func (x locks) setQueue(key string, q *Queue) {
	l := x[key]
	l.queue = q
	x.set(key, l)
}
