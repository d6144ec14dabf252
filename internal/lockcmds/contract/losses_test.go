package contract

import (
	"strconv"
	"testing"
)

func TestLossIsRememberedUntilItIsForgotten(t *testing.T) {
	s := NewSet(NewBudget(0))
	if s.Forget("k", "me") || s.Fence("k", "me") != 0 || s.Vague() {
		t.Error("an empty set remembers something")
	}
	s.Add("k", "me", 7)
	s.Add("k", "me", 8)
	if s.Fence("k", "me") != 8 || s.Fence("k", "you") != 0 || s.Fence("km", "e") != 0 || s.Len() != 1 {
		t.Error("the fence of a loss")
	}
	if !s.Forget("k", "me") || s.Forget("k", "me") || s.Len() != 0 || s.some.Load() {
		t.Error("a loss is told once")
	}
}

func TestEveryLossWithinTheBudgetIsRemembered(t *testing.T) {
	const n = 5000
	b := NewBudget(n)
	s := NewSet(b)
	for i := range n + Floor {
		s.Add(strconv.Itoa(i), "me", int64(i+1))
	}
	if s.Vague() || b.Left() != 0 {
		t.Fatalf("vague: %v, left %d", s.Vague(), b.Left())
	}
	for i := range n + Floor {
		if !s.Forget(strconv.Itoa(i), "me") {
			t.Fatalf("%d is forgotten", i)
		}
	}
	if b.Left() != n {
		t.Errorf("%d of %d given back", b.Left(), n)
	}
}

func TestSpentBudgetMakesOnlyWhoSpentItVague(t *testing.T) {
	b := NewBudget(100)
	greedy, modest := NewSet(b), NewSet(b)
	for i := range 100 * Floor {
		greedy.Add(strconv.Itoa(i), "me", 1)
		if n := greedy.Len(); n > Floor+100 {
			t.Fatalf("%d remembered", n)
		}
	}
	if !greedy.Vague() || b.Left() != 100 {
		t.Errorf("vague: %v, left %d", greedy.Vague(), b.Left())
	}
	for i := range Floor {
		modest.Add(strconv.Itoa(i), "me", 1)
	}
	if modest.Vague() || modest.Len() != Floor {
		t.Error("a session within its floor was made vague")
	}
	if fence := greedy.Fence(strconv.Itoa(100*Floor-1), "me"); fence != 1 {
		t.Error("the latest loss is not known exactly")
	}
	for i := range 100 * Floor {
		greedy.Forget(strconv.Itoa(i), "me")
	}
	if !greedy.Vague() {
		t.Error("what was dropped may still be asked for")
	}
}

func TestEndGivesTheBudgetBack(t *testing.T) {
	b := NewBudget(100)
	s := NewSet(b)
	for i := range Floor + 50 {
		s.Add(strconv.Itoa(i), "me", 1)
	}
	s.End()
	s.Add("late", "me", 1)
	if b.Left() != 100 || s.Len() != 0 || s.Forget("late", "me") {
		t.Errorf("left %d, %d remembered", b.Left(), s.Len())
	}
}

func BenchmarkNone(b *testing.B) {
	s := NewSet(NewBudget(0))
	for b.Loop() {
		s.Forget("job:17", "me")
	}
}
