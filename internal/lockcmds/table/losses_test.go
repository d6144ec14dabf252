package table

import (
	"strconv"
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
	for _, other := range []Key{{"k", "you", alone}, {"km", "e", alone}, {"k", "me", together}} {
		if l.Fence(other) != 0 || l.Forget(other) {
			t.Errorf("%v was not lost", other)
		}
	}
	if l.Fence(k) != 8 || !l.Forget(k) || l.Forget(k) || !l.Empty() {
		t.Error("a loss is told once")
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
