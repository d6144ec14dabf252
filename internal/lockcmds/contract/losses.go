package contract

import (
	"hash/maphash"
	"sync"
	"sync/atomic"
)

// This file remembers the locks that a session has lost, until a reply has told the session.
//
// A session gets -LOSTLEASE for every lost lock, however many there are. Each of them costs a few dozen bytes, because
// names are kept as keyed hashes of 128 bits. Beyond a floor the memory comes out of a budget that all sessions share.
// When the budget is spent, the session's oldest losses are dropped, and from then on every lock that it does not hold
// counts as lost. So a loss may be reported that did not happen, but no loss stays unreported.

// Floor is how many losses a session may have that cost the budget nothing.
const Floor = 1024

// DefaultBudget is how many losses beyond their floors all sessions together may have: about 100 MB.
const DefaultBudget = 2 << 20

// Budget is the memory that the sets of all sessions share. Its methods may be called from any goroutine.
type Budget struct {
	left atomic.Int64
	seed [2]maphash.Seed
}

// NewBudget returns a budget of n losses.
func NewBudget(n int64) *Budget {
	b := &Budget{seed: [2]maphash.Seed{maphash.MakeSeed(), maphash.MakeSeed()}}
	b.left.Store(n)
	return b
}

// Left is the number of further losses that fit beyond the floors.
func (b *Budget) Left() int64 { return b.left.Load() }

func (b *Budget) take() bool {
	if b.left.Add(-1) < 0 {
		b.left.Add(1)
		return false
	}
	return true
}

// name is the hash of a lock's name and an owner.
type name [2]uint64

func (b *Budget) name(key, owner string) name {
	var n name
	for i, seed := range b.seed {
		k, o := maphash.String(seed, key), maphash.String(seed, owner)
		n[i] = maphash.Comparable(seed, [2]uint64{k, o})
	}
	return n
}

// Set is the losses of one session in one database. Its methods may be called from any goroutine.
type Set struct {
	budget *Budget
	some   atomic.Bool // there may be losses: the usual case, none, costs no lock

	mu      sync.Mutex // a leaf: nothing is called while it is held
	recent  map[name]int64
	older   map[name]int64 // while vague: those before recent
	charged int64          // to the budget
	vague   bool           // some losses have been dropped
	ended   bool
}

// NewSet returns an empty set.
func NewSet(b *Budget) *Set { return &Set{budget: b} }

// Add remembers that the owner's hold of a lock, by the grant with that fence, was lost.
func (s *Set) Add(key, owner string, fence int64) {
	n := s.budget.name(key, owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	s.some.Store(true)
	delete(s.older, n)
	if s.recent == nil {
		s.recent = make(map[name]int64)
	}
	if _, known := s.recent[n]; !known && !s.fits() {
		if s.older = nil; s.vague {
			s.older = s.recent // a few, of late
		}
		s.recent, s.vague = make(map[name]int64), true
	}
	s.recent[n] = fence
	s.settle()
}

// fits reports whether one loss more may be remembered. Requires s.mu.
func (s *Set) fits() bool {
	n := int64(len(s.recent) + len(s.older))
	if s.vague {
		return len(s.recent) < Floor/2
	}
	if n < Floor+s.charged {
		return true
	}
	if !s.budget.take() {
		return false
	}
	s.charged++
	return true
}

// settle returns to the budget what is no longer needed. Requires s.mu.
func (s *Set) settle() {
	need := max(0, int64(len(s.recent)+len(s.older))-Floor)
	if s.ended || s.vague {
		need = 0
	}
	if s.charged > need {
		s.budget.left.Add(s.charged - need)
		s.charged = need
	}
}

// Empty reports whether there was no loss that is not told. It costs no lock.
func (s *Set) Empty() bool { return !s.some.Load() }

// Fence returns the fence of a loss that is remembered exactly; 0: of none.
func (s *Set) Fence(key, owner string) int64 {
	if !s.some.Load() {
		return 0
	}
	n := s.budget.name(key, owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if fence, known := s.recent[n]; known {
		return fence
	}
	return s.older[n]
}

// Forget removes a loss, because the session has been told or has the lock again, and reports whether it was remembered
// exactly.
func (s *Set) Forget(key, owner string) bool {
	if !s.some.Load() {
		return false
	}
	n := s.budget.name(key, owner)
	s.mu.Lock()
	defer s.mu.Unlock()
	_, known := s.recent[n]
	if !known {
		_, known = s.older[n]
	}
	delete(s.recent, n)
	delete(s.older, n)
	if len(s.recent)+len(s.older) == 0 {
		s.recent, s.older = nil, nil // a burst must not keep its memory
		s.some.Store(s.vague)
	}
	s.settle()
	return known
}

// Vague reports whether losses have been dropped: a lock that the session does not hold may be one of them.
func (s *Set) Vague() bool {
	if !s.some.Load() {
		return false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.vague
}

// Len is how many losses are remembered exactly.
func (s *Set) Len() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.recent) + len(s.older)
}

// End frees the set. The session has ended.
func (s *Set) End() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended, s.vague = true, false
	s.recent, s.older = nil, nil
	s.some.Store(false)
	s.settle()
}
