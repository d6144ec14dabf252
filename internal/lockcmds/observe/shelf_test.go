package observe

import (
	"testing"
)

// A log outlives its users. Of those without a user the latest stay, and the others give back what they have taken from
// the budget.
func TestAShelfKeepsTheLatestLogs(t *testing.T) {
	b := NewBudget(100)
	s := NewShelf[int](2, func() *Log { return New(b, func() Settings { return Settings{Len: 1000} }) })
	for key := range 3 {
		l := s.Take(key)
		if s.Take(key) != l {
			t.Error("two users of a key have two logs")
		}
		for range floor + 10 {
			l.Ended(Ending{})
		}
		s.Return(key)
	}
	if b.left.Load() != 70 {
		t.Fatalf("%d left of the budget", b.left.Load())
	}
	s.Return(1)
	s.Return(0)
	s.Take(1)
	s.Return(1)
	s.Return(2) // the log of 0 is the one that was in use longest ago
	if b.left.Load() != 80 || len(s.logs) != 2 || s.unused.Len() != 2 {
		t.Errorf("%d left of the budget, %d logs", b.left.Load(), len(s.logs))
	}
	for key, want := range map[int]int{0: 0, 1: floor + 10, 2: floor + 10} {
		if n := s.Take(key).Len(); n != want {
			t.Errorf("log %d has %d entries, want %d", key, n, want)
		}
	}
	if s.unused.Len() != 0 {
		t.Error("logs in use may be closed")
	}
}
