package admission

// Verdict says whether an owner gets a place.
type Verdict uint8

const (
	// Granted means that the place is taken.
	Granted Verdict = iota
	// Full means that all places are taken.
	Full
	// OverShare means that there are places, but the owner has its share.
	OverShare
)

// Places are a bounded number of places, of which no owner gets more than a share. An owner is an address, as a rule.
type Places struct {
	total, share int
	taken        int
	by           map[string]int // no entry is 0
}

// NewPlaces makes total places, of which an owner gets at most share.
func NewPlaces(total, share int) *Places {
	return &Places{total: total, share: share, by: map[string]int{}}
}

// Resize changes the number of places and the share of an owner. Places that are taken stay so.
func (p *Places) Resize(total, share int) { p.total, p.share = total, share }

// Ask returns the verdict that Take would return.
func (p *Places) Ask(owner string) Verdict {
	switch {
	case p.Full():
		return Full
	case p.by[owner] >= p.share:
		return OverShare
	}
	return Granted
}

// Take takes a place for owner if it may have one.
func (p *Places) Take(owner string) Verdict {
	v := p.Ask(owner)
	if v == Granted {
		p.Force(owner)
	}
	return v
}

// Force takes a place for owner even beyond the bounds.
func (p *Places) Force(owner string) {
	p.taken++
	p.by[owner]++
}

// Return frees a place that owner has taken.
func (p *Places) Return(owner string) {
	switch p.by[owner] {
	case 0:
		panic("BUG: a place is returned that was not taken")
	case 1:
		delete(p.by, owner)
	default:
		p.by[owner]--
	}
	p.taken--
}

// Full reports whether no owner can take a place.
func (p *Places) Full() bool { return p.taken >= p.total }

// Beyond reports whether owner would have more than its share if it had n places more.
func (p *Places) Beyond(owner string, n int) bool { return p.by[owner]+n > p.share }

// Total is the number of places.
func (p *Places) Total() int { return p.total }

// Taken is the number of taken places.
func (p *Places) Taken() int { return p.taken }

// Share is one owner's part of total by default: three quarters, rounded up, so that some places are left for other
// owners.
func Share(total int) int { return (3*total + 3) / 4 }
