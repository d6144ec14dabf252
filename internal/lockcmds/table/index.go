package table

// index finds holds by lock and owner, and the holder of a lock. Redis knows one holder, so a lock has rarely a second
// hold here: one that has ended in Redis, without an answer that says so. All calls cost O(1), because a client chooses
// how many of those there are.
type index map[string]sameLock

// sameLock is the holds of one lock.
type sameLock struct {
	latest *Hold            // the one with the highest fence when it was added; nil: it has ended, and others are left
	others map[string]*Hold // by owner
}

func (x index) find(k Key) *Hold {
	s := x[k.Lock]
	if h := s.latest; h != nil && h.Owner == k.Owner {
		return h
	}
	return s.others[k.Owner]
}

// add adds a hold. There is none of the same owner.
func (x index) add(h *Hold) {
	s := x[h.Lock]
	other := s.latest
	if other == nil || other.Fence < h.Fence {
		s.latest = h
	} else {
		other = h
	}
	if other != nil {
		if s.others == nil {
			s.others = map[string]*Hold{}
		}
		s.others[other.Owner] = other
	}
	x[h.Lock] = s
}

// remove removes a hold that the index has.
func (x index) remove(h *Hold) {
	s := x[h.Lock]
	if s.latest == h {
		s.latest = nil
	} else {
		delete(s.others, h.Owner)
	}
	if s.latest == nil && len(s.others) == 0 {
		delete(x, h.Lock)
	} else {
		x[h.Lock] = s
	}
}
