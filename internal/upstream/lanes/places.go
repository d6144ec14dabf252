package lanes

import "github.com/lockproxy/lockproxy/internal/admission"

// places are the places of sets. The sets of new clients have none, and are always there (Options.Free). All other sets
// have places, and unused ones lose them when there are many. The caller closes the lanes that have lost their places.
// It is guarded by Lanes.mu.
type places struct {
	taken  *admission.Places
	unused *admission.Idle[key, *set] // of the sets with places
}

func newPlaces(size int) places {
	return places{admission.NewPlaces(size, admission.Share(size)), admission.NewIdle[key, *set]()}
}

// A quarter of the sets may be unused, and one address may have opened a quarter of those: a client that moves from
// identity to identity leaves no more behind.
func (p *places) mayRest() int      { return max(1, p.taken.Total()/4) }
func (p *places) mayRestByOne() int { return max(1, p.mayRest()/4) }

// take takes a place for owner. Unused sets may lose theirs for it.
func (p *places) take(owner string) (evicted []*set, ok bool) {
	for {
		var s *set
		var found bool
		switch p.taken.Take(owner) {
		case admission.Granted:
			return evicted, true
		case admission.OverShare:
			s, found = p.unused.EvictOf(owner)
		default:
			s, found = p.unused.Evict(owner)
		}
		if !found {
			return evicted, false
		}
		p.free(s)
		evicted = append(evicted, s)
	}
}

// mayTake reports whether take would find a place.
func (p *places) mayTake(owner string) bool {
	switch p.taken.Ask(owner) {
	case admission.Granted:
		return true
	case admission.OverShare:
		return p.unused.CountOf(owner) > 0
	default:
		return p.unused.Len() > 0
	}
}

// free returns the place of a set, if it has one.
func (p *places) free(s *set) {
	if s.placed {
		s.placed = false
		p.unused.Remove(s)
		p.taken.Return(s.owner)
	}
}

// rest notes that a set is unused.
func (p *places) rest(s *set) (evicted []*set) {
	if !s.placed {
		return nil
	}
	evict := func(s *set, found bool) {
		if found {
			p.free(s)
			evicted = append(evicted, s)
		}
	}
	p.unused.Add(s.key, s, s.owner)
	if p.unused.CountOf(s.owner) > p.mayRestByOne() {
		evict(p.unused.EvictOf(s.owner))
	}
	if p.unused.Len() > p.mayRest() {
		evict(p.unused.Evict(s.owner))
	}
	return evicted
}
