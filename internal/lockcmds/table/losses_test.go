package table

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
)

func lossOf(i int) Key { return Key{Lock: strconv.Itoa(i), Owner: "me", Kind: alone} }

func TestLossIsRememberedUntilItIsForgotten(t *testing.T) {
	var l Losses
	k := Key{Lock: "k", Owner: "me", Kind: alone}
	if l.Forget(k) || l.Fence(k) != 0 || l.Vague() {
		t.Error("an empty set remembers something")
	}
	l.Add(k, 7)
	l.Add(k, 8)
	for _, other := range []Key{{"k", "you", alone}, {"km", "e", alone}, {"k", "me", permit}} {
		if l.Fence(other) != 0 || l.Forget(other) {
			t.Errorf("%v was not lost", other)
		}
	}
	if l.Fence(k) != 8 || !l.Forget(k) || l.Forget(k) || !l.Empty() {
		t.Error("a loss is told once")
	}
}

// Of several grants of one owner each loss counts, whichever engines tell of them at the same time.
func TestLossesOfSeveralGrantsAreCounted(t *testing.T) {
	var l Losses
	const each = 1000
	k := Key{Lock: "k", Owner: "me", Kind: permit}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			for i := range each {
				l.Add(k, int64(i+1))
			}
		})
	}
	wg.Wait()
	for i := range mostLosses {
		l.Add(lossOf(i), 1) // those of the permits are older ones now
	}
	l.Forget(k)
	l.Forget(k)
	l.Add(k, 1)
	if l.Fence(k) != 2*each-1 {
		t.Errorf("%d losses, want %d", l.Fence(k), 2*each-1)
	}
	for range 2*each - 1 {
		if !l.Forget(k) {
			t.Fatalf("a loss is not told, and %d are left", l.Fence(k))
		}
	}
	if l.Forget(k) || l.Fence(k) != 0 {
		t.Error("a loss is told twice")
	}
}

func TestTheLatestLossesAreKnownExactly(t *testing.T) {
	var memory atomic.Int64
	l := Losses{Memory: &memory}
	for i := range 2 * mostLosses {
		l.Add(lossOf(i), 1)
		l.Add(lossOf(i), int64(i+1)) // again: it costs nothing
	}
	if l.Vague() {
		t.Fatal("losses were dropped")
	}
	for i := 2 * mostLosses; i < 10*mostLosses; i++ {
		l.Add(lossOf(i), int64(i+1))
		if n := len(l.recent) + len(l.older); n > 2*mostLosses || memory.Load() != int64(n*lossBytes) {
			t.Fatalf("%d remembered, %d bytes", n, memory.Load())
		}
	}
	for i := 9 * mostLosses; i < 10*mostLosses; i++ {
		if l.Fence(lossOf(i)) != int64(i+1) || !l.Forget(lossOf(i)) {
			t.Fatalf("%d is forgotten", i)
		}
	}
	for i := range 10 * mostLosses {
		l.Forget(lossOf(i))
	}
	if !l.Vague() || l.Empty() || l.recent != nil || l.older != nil || memory.Load() != 0 {
		t.Errorf("what was dropped may still be asked for; %d bytes", memory.Load())
	}
}

func BenchmarkNone(b *testing.B) {
	var l Losses
	k := lossOf(17)
	for b.Loop() {
		l.Forget(k)
	}
}
