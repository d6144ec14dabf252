package lockcmds

import (
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// The arguments of drop.
const (
	argFence = 1
	argKeep  = 2
	argName  = 4
)

func TestTheEndOfASessionAppliesGrace(t *testing.T) {
	for _, c := range []struct {
		name, owner string
		grace       time.Duration
		others      bool   // another session of the owner holds the lock
		drop        string // the grace that is sent; empty: nothing is
	}{
		{"its own owner", "", -1, false, ""},
		{"its own owner, at once", "", 0, false, "0"},
		{"its own owner, soon", "", time.Second, false, "1000"},
		{"a named owner", "me", -1, false, ""},
		{"a named owner, at once", "me", 0, false, "0"},
		{"a named owner, soon", "me", time.Second, false, "1000"},
		{"a named owner with others, at once", "me", 0, true, ""},
		{"a named owner with others, soon", "me", time.Second, true, ""},
	} {
		w, a, b := newLockWorld(t), newClient(1), newClient(2)
		w.Own.Answers = []any{goesOn}
		h := w.acquire(t, a, c.owner, func(g *table.Grant) { g.Grace = c.grace })
		if c.others {
			w.acquire(t, b, c.owner, func(g *table.Grant) { g.Count = 2 })
		}
		w.Ended(a.caller.ID)
		w.Work()
		got := ""
		if len(w.Own.Args) > 0 {
			got = w.Own.Args[0][argKeep]
		}
		if got != c.drop || len(w.Own.Args) > 1 || w.table.Knows(h) != c.others {
			t.Errorf("%s: grace %q, want %q; the hold goes on: %v", c.name, got, c.drop, w.table.Knows(h))
		}
		w.Ended(a.caller.ID) // once more: nothing
		w.pass(t, 15*time.Second)
		if renewed := slices.Contains(w.Own.Asked, "renew"); renewed != c.others {
			t.Errorf("%s: renewed: %v", c.name, renewed)
		}
	}
}

// Very many holds end in slices: the first at once, and the rest by a job that lets others in.
func TestVeryManyHoldsEndInSlices(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	const n = 3*endingSlice + 1
	for i := range n {
		ask := w.asksFor(&a.caller, strconv.Itoa(i), "")
		ask.records(w.Time, &table.Grant{Fence: fence, Count: 1, SentAt: w.Time, TTL: 30 * time.Second, Grace: -1})
	}
	w.Ended(a.caller.ID)
	if left := w.Holds(); left != n-endingSlice {
		t.Errorf("%d holds are left behind the first slice, want %d", left, n-endingSlice)
	}
	w.Work()
	if left := w.Holds(); left != 0 || !w.noWaiter() {
		t.Errorf("%d holds are left", left)
	}
}
