package session

import "testing"

// Replies make a session bulky at once, and ordinary again slowly.
func TestWeightOfReplies(t *testing.T) {
	w := weight{Window: firstWindow}
	for _, want := range []int{64, 256, 1024, 0, 0} {
		if w.weigh() || w.Window != want {
			t.Fatalf("window %d, want %d", w.Window, want)
		}
	}
	w.Burst = largeBurst
	if !w.weigh() || !w.bulky() {
		t.Error("a large burst changes nothing")
	}
	w.Burst = largeBurst
	if w.weigh() {
		t.Error("the second one changes something")
	}
	for i := range calmBursts {
		w.Burst = largeBurst - 1
		if w.weigh() != (i == calmBursts-1) {
			t.Fatalf("after %d small bursts", i+1)
		}
	}
}
