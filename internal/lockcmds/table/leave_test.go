package table

import (
	"slices"
	"testing"
)

// departuresWorld has a table, and what it has asked for about departures.
type departuresWorld struct {
	*Table
	calls int
	waits int
	sent  []string
}

func newDeparturesWorld() *departuresWorld { return &departuresWorld{Table: New(Config{})} }

// departBefore has a place leave before a reply.
func (w *departuresWorld) departBefore(place, reply string) {
	w.depart("k", place, &Effect{Op: Finish, Waiter: &Waiter{Key: Key{Owner: reply}}})
}

// take notes what the table has asked for.
func (w *departuresWorld) take() *departuresWorld {
	for _, f := range w.Effects() {
		switch f.Op {
		case RemovePlaces:
			w.calls++
		case Patience:
			w.waits++
		case Finish:
			w.sent = append(w.sent, f.Waiter.Owner)
		default:
			panic(f.Op)
		}
	}
	return w
}

func TestPlacesThatGatherDuringACallLeaveTogether(t *testing.T) {
	w := newDeparturesWorld()
	w.depart("k", "a", nil)
	if got := w.Departing("k"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("first call: %q", got)
	}
	w.departBefore("b", "to b")
	w.departBefore("c", "to c")
	if got := w.Departing("k"); !slices.Equal(got, []string{"a"}) {
		t.Fatalf("the repeated call: %q", got)
	}
	w.Departed("k")
	if got := w.Departing("k"); w.take().calls != 2 || !slices.Equal(got, []string{"b", "c"}) || len(w.take().sent) != 0 {
		t.Fatalf("call %d: %q, sent %q", w.take().calls, got, w.take().sent)
	}
	w.Departed("k")
	if w.take().calls != 2 || w.Leaving() != 0 || !slices.Equal(w.take().sent, []string{"to b", "to c"}) {
		t.Fatalf("%d calls, %d locks, sent %q", w.take().calls, w.Leaving(), w.take().sent)
	}
	w.PatienceDue("k") // the timer of an earlier round
}

func TestAPlaceThatIsOccupiedAgainStays(t *testing.T) {
	w := newDeparturesWorld()
	w.departBefore("a", "to a")
	w.Table.waits.locks.setQueue("k", &Queue{places: map[string]*line[*Waiter]{"a": {}}})
	if got := w.Departing("k"); len(got) != 0 {
		t.Fatalf("%q", got)
	}
	w.Departed("k")
	if !slices.Equal(w.take().sent, []string{"to a"}) {
		t.Fatalf("sent %q", w.take().sent)
	}
}

func TestAReplyIsPutOffForOneRoundAtMost(t *testing.T) {
	w := newDeparturesWorld()
	w.departBefore("a", "to a")
	w.Departing("k")
	w.PatienceDue("k") // up to half of the time
	w.departBefore("b", "to b")
	if len(w.take().sent) != 0 || w.take().waits != 2 {
		t.Fatalf("sent %q after %d timers", w.take().sent, w.take().waits)
	}
	w.PatienceDue("k")
	if !slices.Equal(w.take().sent, []string{"to a"}) || w.take().waits != 3 {
		t.Fatalf("sent %q after %d timers", w.take().sent, w.take().waits)
	}
	w.PatienceDue("k")
	w.Departed("k")
	w.Departing("k")
	w.Departed("k")
	if !slices.Equal(w.take().sent, []string{"to a", "to b"}) || w.take().waits != 3 || w.Leaving() != 0 {
		t.Fatalf("sent %q after %d timers, %d locks", w.take().sent, w.take().waits, w.Leaving())
	}
}

func TestOneCallTakesOutABoundedNumber(t *testing.T) {
	w := newDeparturesWorld()
	for range batchLimit + 1 {
		w.depart("k", "a", nil)
	}
	for _, want := range []int{batchLimit, 1} {
		if got := len(w.Departing("k")); got != want {
			t.Fatalf("%d places, want %d", got, want)
		}
		w.Departed("k")
	}
}
