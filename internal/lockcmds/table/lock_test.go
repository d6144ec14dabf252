package table

import (
	"math/rand/v2"
	"testing"
)

// TestLocksAreAMap compares the locks with a map, with many owners of few locks.
func TestLocksAreAMap(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	x, model := locks{}, map[Key]*Hold{}
	for i := range 20_000 {
		k := Key{Lock: string(rune('a' + r.IntN(3))), Owner: string(rune('A' + r.IntN(5))), Kind: alone}
		h := model[k]
		if x.find(k) != h {
			t.Fatalf("step %d: %v is %v, want %v", i, k, x.find(k), h)
		}
		if h == nil {
			h = &Hold{Key: k, Fence: r.Int64N(1000)}
			x.add(h)
			model[k] = h
		} else {
			x.remove(h)
			delete(model, k)
		}
		keys := map[string]bool{}
		for k := range model {
			keys[k.Lock] = true
		}
		if len(x) != len(keys) {
			t.Fatalf("step %d: %d locks, want %d", i, len(x), len(keys))
		}
		if h := x[k.Lock].latest; h != nil && model[h.Key] != h {
			t.Fatalf("step %d: the latest hold has ended", i)
		}
	}
}

func TestTheLatestGrantIsTheHolders(t *testing.T) {
	l := New(Config{})
	old, next := l.add(Key{Lock: "k", Owner: "old", Kind: alone}, 1), l.add(Key{Lock: "k", Owner: "next", Kind: alone}, 2)
	l.add(Key{Lock: "k", Owner: "late", Kind: alone}, 0)
	if got := l.Latest("k"); got != next {
		t.Errorf("%v", got)
	}
	l.Drop(next)
	if got := l.Latest("k"); got != nil || !l.Knows(old) {
		t.Errorf("%v", got)
	}
	if l.Latest("other") != nil {
		t.Error("a lock without holds has a holder")
	}
}
