package observe

import (
	"container/list"
	"sync"
)

// Shelf keeps a Log for each key that is in use, and those of the keys that were in use last. Its methods may be called
// from any goroutine.
type Shelf[K comparable] struct {
	newLog func() *Log
	most   int // logs that are not in use

	mu     sync.Mutex
	logs   map[K]*kept
	unused *list.List // of their keys, the one that was in use longest ago first
}

type kept struct {
	log    *Log
	users  int
	unused *list.Element // nil: it is in use
}

// NewShelf returns an empty shelf of logs that newLog makes. It keeps that many logs that are not in use.
func NewShelf[K comparable](most int, newLog func() *Log) *Shelf[K] {
	return &Shelf[K]{newLog: newLog, most: most, logs: map[K]*kept{}, unused: list.New()}
}

// Take returns the log of a key for one more user. Each call is paired with one of Return.
func (s *Shelf[K]) Take(key K) *Log {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.logs[key]
	if k == nil {
		k = &kept{log: s.newLog()}
		s.logs[key] = k
	}
	if k.users++; k.unused != nil {
		s.unused.Remove(k.unused)
		k.unused = nil
	}
	return k.log
}

// Return counts a user of the log out. The entries stay until the key is one of too many without a user.
func (s *Shelf[K]) Return(key K) {
	s.mu.Lock()
	defer s.mu.Unlock()
	k := s.logs[key]
	if k.users--; k.users > 0 {
		return
	}
	k.unused = s.unused.PushBack(key)
	if s.unused.Len() > s.most {
		delete(s.logs, s.unused.Remove(s.unused.Front()).(K))
	}
}
