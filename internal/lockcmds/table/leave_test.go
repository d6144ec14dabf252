package table

import (
	"slices"
	"testing"
	"time"
)

// departuresWorld records what departures ask for.
type departuresWorld struct {
	*departures[string]
	calls    int
	waits    int
	sent     []string
	occupied map[string]bool
}

func newDeparturesWorld() *departuresWorld {
	w := &departuresWorld{occupied: map[string]bool{}}
	w.departures = newDepartures(departureHooks[string]{
		Remove:   func(string) { w.calls++ },
		Wait:     func(string, time.Duration) { w.waits++ },
		Send:     func(reply string) { w.sent = append(w.sent, reply) },
		Occupied: func(_, place string) bool { return w.occupied[place] },
	})
	return w
}

func TestPlacesThatGatherDuringACallLeaveTogether(t *testing.T) {
	w := newDeparturesWorld()
	w.Depart("k", "a")
	if got := w.Batch("k"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("first call: %q", got)
	}
	w.DepartBefore("k", "b", "to b")
	w.DepartBefore("k", "c", "to c")
	if got := w.Batch("k"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the repeated call: %q", got)
	}
	w.Done("k")
	if got := w.Batch("k"); w.calls != 2 || !slices.Equal(got, []string{"b", "c"}) || len(w.sent) != 0 {
		t.Fatalf("call %d: %q, sent %q", w.calls, got, w.sent)
	}
	w.Done("k")
	if w.calls != 2 || w.Len() != 0 || !slices.Equal(w.sent, []string{"to b", "to c"}) {
		t.Fatalf("%d calls, %d locks, sent %q", w.calls, w.Len(), w.sent)
	}
	w.Due("k") // the timer of an earlier round
}

func TestAPlaceThatIsOccupiedAgainStays(t *testing.T) {
	w := newDeparturesWorld()
	w.DepartBefore("k", "a", "to a")
	w.occupied["a"] = true
	if got := w.Batch("k"); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	w.Done("k")
	if !slices.Equal(w.sent, []string{"to a"}) {
		t.Fatalf("sent %q", w.sent)
	}
}

func TestAReplyIsPutOffForOneRoundAtMost(t *testing.T) {
	w := newDeparturesWorld()
	w.DepartBefore("k", "a", "to a")
	w.Batch("k")
	w.Due("k") // up to half of the time
	w.DepartBefore("k", "b", "to b")
	if len(w.sent) != 0 || w.waits != 2 {
		t.Fatalf("sent %q after %d timers", w.sent, w.waits)
	}
	w.Due("k")
	if !slices.Equal(w.sent, []string{"to a"}) || w.waits != 3 {
		t.Fatalf("sent %q after %d timers", w.sent, w.waits)
	}
	w.Due("k")
	w.Done("k")
	w.Batch("k")
	w.Done("k")
	if !slices.Equal(w.sent, []string{"to a", "to b"}) || w.waits != 3 || w.Len() != 0 {
		t.Fatalf("sent %q after %d timers, %d locks", w.sent, w.waits, w.Len())
	}
}

func TestOneCallTakesOutABoundedNumber(t *testing.T) {
	w := newDeparturesWorld()
	for range batchLimit + 1 {
		w.Depart("k", "a")
	}
	for _, want := range []int{batchLimit, 1} {
		if got := len(w.Batch("k")); got != want {
			t.Fatalf("%d places, want %d", got, want)
		}
		w.Done("k")
	}
}
