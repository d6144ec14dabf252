package admission

import (
	"container/list"
	"slices"
)

// Idle holds unused things of owners by key, least recently used first. Each thing is in it once at most.
type Idle[K, V comparable] struct {
	order *list.List // of unused: the oldest at first
	at    map[V]*list.Element
	byKey map[K][]V      // oldest at first; no entry is empty
	count map[string]int // by owner; no entry is 0
}

type unused[K, V comparable] struct {
	key   K
	v     V
	owner string
}

// NewIdle returns an empty Idle.
func NewIdle[K, V comparable]() *Idle[K, V] {
	return &Idle[K, V]{order: list.New(), at: map[V]*list.Element{}, byKey: map[K][]V{}, count: map[string]int{}}
}

// Len is the number of things.
func (s *Idle[K, V]) Len() int { return s.order.Len() }

// Count is the number of things of key.
func (s *Idle[K, V]) Count(key K) int { return len(s.byKey[key]) }

// Add puts v in as the most recently used. owner has used it last.
func (s *Idle[K, V]) Add(key K, v V, owner string) {
	s.at[v] = s.order.PushBack(unused[K, V]{key, v, owner})
	s.byKey[key] = append(s.byKey[key], v)
	s.count[owner]++
}

// Take takes out the most recently used thing of key.
func (s *Idle[K, V]) Take(key K) (v V, ok bool) {
	list := s.byKey[key]
	if len(list) == 0 {
		return v, false
	}
	v = list[len(list)-1]
	return v, s.Remove(v)
}

// Remove takes v out. It reports whether it was there.
func (s *Idle[K, V]) Remove(v V) bool {
	e := s.at[v]
	if e == nil {
		return false
	}
	was := s.order.Remove(e).(unused[K, V])
	key := was.key
	delete(s.at, v)
	if s.count[was.owner]--; s.count[was.owner] == 0 {
		delete(s.count, was.owner)
	}
	rest := s.byKey[key]
	if len(rest) == 1 {
		delete(s.byKey, key)
		return true
	}
	i := slices.Index(rest, v)
	s.byKey[key] = slices.Delete(rest, i, i+1)
	return true
}

// CountOf is the number of things that owner has used last.
func (s *Idle[K, V]) CountOf(owner string) int { return s.count[owner] }

// Evict takes out one thing to free a place for owner: the owner's own oldest one, else the oldest of all. So an owner
// that uses much loses its own things first.
func (s *Idle[K, V]) Evict(owner string) (v V, ok bool) {
	if s.count[owner] > 0 {
		return s.EvictOf(owner)
	}
	e := s.order.Front()
	if e == nil {
		return v, false
	}
	v = e.Value.(unused[K, V]).v
	return v, s.Remove(v)
}

// EvictOf takes out the oldest thing of owner.
func (s *Idle[K, V]) EvictOf(owner string) (v V, ok bool) {
	if s.count[owner] == 0 {
		return v, false
	}
	e := s.order.Front()
	for e.Value.(unused[K, V]).owner != owner {
		e = e.Next()
	}
	v = e.Value.(unused[K, V]).v
	return v, s.Remove(v)
}

// Values lists everything, oldest at first.
func (s *Idle[K, V]) Values() []V {
	values := make([]V, 0, s.order.Len())
	for e := s.order.Front(); e != nil; e = e.Next() {
		values = append(values, e.Value.(unused[K, V]).v)
	}
	return values
}
