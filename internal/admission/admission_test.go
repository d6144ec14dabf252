package admission

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestNoOwnerTakesMoreThanItsShare(t *testing.T) {
	p := NewPlaces(8, Share(8))
	for i := range 6 {
		if v := p.Take("a"); v != Granted {
			t.Fatalf("place %d: %v", i, v)
		}
	}
	if v := p.Take("a"); v != OverShare {
		t.Errorf("beyond the share: %v", v)
	}
	for range 2 {
		if v := p.Take("b"); v != Granted {
			t.Errorf("another owner: %v", v)
		}
	}
	if v := p.Take("c"); v != Full {
		t.Errorf("beyond the total: %v", v)
	}
	p.Return("a")
	if v := p.Take("c"); v != Granted {
		t.Errorf("a place that was returned: %v", v)
	}
}

func TestShareLeavesSomethingAndIsNeverNothing(t *testing.T) {
	var got []int
	for _, total := range []int{1, 2, 3, 4, 5, 128} {
		got = append(got, Share(total))
	}
	if diff := cmp.Diff([]int{1, 2, 3, 3, 4, 96}, got); diff != "" {
		t.Error(diff)
	}
}

func TestOwnersTakeTurns(t *testing.T) {
	q := NewQueue[string]()
	for _, r := range []string{"a1", "a2", "a3", "a4", "b1", "b2", "c1"} {
		q.Add(r[:1], r)
	}
	withdrawn := q.Add("b", "b3")
	if !q.Remove(withdrawn) || q.Remove(withdrawn) {
		t.Error("a request is withdrawn once")
	}
	var got []string
	for {
		r, ok := q.Next(func(owner string) bool { return owner != "c" })
		if !ok {
			break
		}
		got = append(got, r)
	}
	if diff := cmp.Diff([]string{"a1", "b1", "a2", "b2", "a3", "a4"}, got); diff != "" {
		t.Error(diff)
	}
	if r, ok := q.Next(func(string) bool { return true }); r != "c1" || !ok || q.Len() != 0 {
		t.Errorf("%q %v, %d left", r, ok, q.Len())
	}
}

func TestIdleGoesLeastRecentlyUsedFirst(t *testing.T) {
	s := NewIdle[string, int]()
	s.Add("x", 1, "a")
	s.Add("y", 2, "b")
	s.Add("x", 3, "b")
	if v, ok := s.Take("x"); v != 3 || !ok {
		t.Errorf("the most recently used is %d %v", v, ok)
	}
	s.Add("x", 3, "b")
	if v, ok := s.Evict("b"); v != 2 || !ok {
		t.Errorf("b makes room by %d %v", v, ok)
	}
	if v, ok := s.Evict("nobody"); v != 1 || !ok {
		t.Errorf("who has nothing makes room by %d %v", v, ok)
	}
	if v, ok := s.Evict("nobody"); v != 3 || !ok {
		t.Errorf("then by %d %v", v, ok)
	}
	if _, ok := s.Evict("b"); ok {
		t.Error("there is nothing left")
	}
}

// The three together, as a pool uses them, against a plain count.
func TestPlacesAreNeverLost(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	owners := []string{"a", "b", "c"}
	p, q := NewPlaces(5, 4), NewQueue[string]()
	var held []string
	var tickets []*Ticket[string]
	for range 20_000 {
		owner := owners[rnd.IntN(len(owners))]
		switch rnd.IntN(4) {
		case 0:
			if p.Take(owner) == Granted {
				held = append(held, owner)
			} else {
				tickets = append(tickets, q.Add(owner, owner))
			}
		case 1:
			if len(held) > 0 {
				i := rnd.IntN(len(held))
				p.Return(held[i])
				held = slices.Delete(held, i, i+1)
			}
		case 2:
			if len(tickets) > 0 {
				i := rnd.IntN(len(tickets))
				q.Remove(tickets[i])
				tickets = slices.Delete(tickets, i, i+1)
			}
		}
		for {
			next, ok := q.Next(func(owner string) bool { return p.Ask(owner) == Granted })
			if !ok {
				break
			}
			p.Take(next)
			held = append(held, next)
		}
		count := map[string]int{}
		for _, owner := range held {
			count[owner]++
		}
		if len(held) != p.Taken() || len(held) > 5 || count["a"] > 4 || count["b"] > 4 || count["c"] > 4 {
			t.Fatalf("%d taken, held %v", p.Taken(), count)
		}
		if q.Len() > 0 && len(held) < 5 && slices.ContainsFunc(owners, func(o string) bool { return count[o] < 4 && q.lines[o] != nil }) {
			t.Fatal("somebody waits for a place that is free")
		}
	}
}
