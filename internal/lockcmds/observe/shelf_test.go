package observe

import (
	"testing"
)

// A log outlives its users. Of those without a user the latest stay.
func TestAShelfKeepsTheLatestLogs(t *testing.T) {
	s := NewShelf[int](2, func() *Log { return New(func() Settings { return Settings{} }) })
	for key := range 3 {
		l := s.Take(key)
		if s.Take(key) != l {
			t.Error("two users of a key have two logs")
		}
		l.Ended(Ending{})
		s.Return(key)
	}
	s.Return(1)
	s.Return(0)
	s.Take(1)
	s.Return(1)
	s.Return(2) // the log of 0 is the one that was in use longest ago
	if len(s.logs) != 2 || s.unused.Len() != 2 {
		t.Errorf("%d logs, %d unused", len(s.logs), s.unused.Len())
	}
	for key, want := range map[int]int{0: 0, 1: 1, 2: 1} {
		if n := s.Take(key).Len(); n != want {
			t.Errorf("log %d has %d entries, want %d", key, n, want)
		}
	}
	if s.unused.Len() != 0 {
		t.Error("logs in use may be dropped")
	}
}
