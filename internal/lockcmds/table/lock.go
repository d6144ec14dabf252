package table

// lock is one lock: its holders, and its waiters. The holders are a set of grants. One of them is the ordinary case: it
// costs neither a map nor an allocation. Of an exclusive lock there are more only while one has ended in Redis, without
// an answer that says so. All calls cost O(1), because a client chooses how many holders there are.
type lock struct {
	latest *Hold   // the hold with the highest fence when it was added; nil: it has ended, or there is none
	others *others // the other ones; nil: there were never any
	queue  *Queue  // nil: no client waits here
}

// others is holds of one lock by their fence, and by their owner. A fence alone does not name a hold: after a failover
// two owners may have been granted the same one.
type others struct {
	byFence lines[int64, *Hold]
	byOwner lines[Key, *Hold]
}

// besideNodes are the nodes of a hold in others.
type besideNodes struct{ inFence, inOwner node[*Hold] }

// locks is the locks that are held or waited for here, by key.
type locks map[string]lock

// set keeps a lock while it has a hold or a queue.
func (x locks) set(key string, l lock) {
	if l.latest == nil && (l.others == nil || len(l.others.byFence) == 0) && l.queue == nil {
		delete(x, key)
	} else {
		x[key] = l
	}
}

// find finds the hold of an owner; if it has several, the latest or else the oldest of them.
func (x locks) find(k Key) *Hold {
	l := x[k.Lock]
	if h := l.latest; h != nil && h.Key.name() == k.name() {
		return h
	}
	if l.others == nil {
		return nil
	}
	return l.others.byOwner.First(k.name())
}

// granted finds the hold of any owner and kind by its fence. If there are several, it is the latest of the lock.
func (x locks) granted(key string, fence int64) *Hold {
	l := x[key]
	if h := l.latest; h != nil && h.Fence == fence {
		return h
	}
	if l.others == nil {
		return nil
	}
	return l.others.byFence.First(fence)
}

// add adds a hold.
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
			l.others = &others{lines[int64, *Hold]{}, lines[Key, *Hold]{}}
		}
		other.beside = &besideNodes{}
		l.others.byFence.Push(other.Fence, &other.beside.inFence, other)
		l.others.byOwner.Push(other.Key.name(), &other.beside.inOwner, other)
	}
	x[h.Lock] = l
}

// remove removes a hold that the lock has.
func (x locks) remove(h *Hold) {
	l := x[h.Lock]
	if l.latest == h {
		l.latest = nil
	} else {
		l.others.byFence.Remove(h.Fence, &h.beside.inFence)
		l.others.byOwner.Remove(h.Key.name(), &h.beside.inOwner)
	}
	x.set(h.Lock, l)
}

// setQueue sets the wait queue of a lock; nil: it has none any more.
func (x locks) setQueue(key string, q *Queue) {
	l := x[key]
	l.queue = q
	x.set(key, l)
}
