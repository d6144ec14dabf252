package lockcmds

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/locktest"
)

// Between two slices locks come and go. What is there all the time must be in the list, once.
func TestListHasWhatIsThereAllTheTime(t *testing.T) {
	w, a := newLockWorld(t), newClient(1)
	var all []*table.Hold
	for i := range 5 * listSlice {
		ask := w.asksFor(&a.caller, fmt.Sprintf("key:%05d", i), "")
		ask.records(w.Time, &table.Grant{Fence: fence, Count: 1, SentAt: w.Time, TTL: 30 * time.Second, Grace: -1})
		all = append(all, w.table.Hold(ask.Key))
	}
	seen := map[string]int{}
	gone := map[string]bool{}
	var list []Hold
	for h := range w.holds() {
		list = append(list, h)
		if seen[h.Key]++; len(list)%listSlice != 0 {
			continue
		}
		w.step(func(l *table.Table) {
			for i := len(list) / listSlice; i < len(all); i += 7 { // from everywhere
				if h := all[i]; !gone[h.Lock] {
					gone[h.Lock] = true
					l.Drop(h)
				}
			}
		})
	}
	for _, h := range all {
		if !gone[h.Lock] && seen[h.Lock] == 0 {
			t.Errorf("%s was there all the time and is not in the list", h.Lock)
		}
	}
	if n := len(all) - len(gone); w.Holds() != n {
		t.Errorf("%d counted, want %d", w.Holds(), n)
	}
	if found := firstByKey(append(slices.Clone(list), list...), 0); len(found) != len(seen) {
		t.Errorf("%d of %d, each seen twice", len(found), len(seen))
	}
}

func keys(list []Hold) (names []string) {
	for _, i := range list {
		names = append(names, i.Key)
	}
	return names
}

func TestFindIsSortedMatchedAndBounded(t *testing.T) {
	var held []Hold
	for i := range 3 * listSlice {
		held = append(held, Hold{Key: fmt.Sprintf("k%04d", 3*listSlice-i), Owner: "o"})
	}
	held = append(held, Hold{Key: "other", Owner: "o"}, Hold{Key: "other", Owner: "p"}, Hold{Key: "other", Owner: "o"})
	for _, c := range []struct {
		pattern string
		most    int
		first   string
		n       int
	}{
		{"", 0, "k0001", 3*listSlice + 2}, // each owner of a key once
		{"", 2, "k0001", 2},
		{"k000*", 0, "k0001", 9},
		{"other", 5, "other", 2},
		{"none", 0, "", 0},
	} {
		found := keys(findIn(slices.Values(held), len(held), c.pattern, c.most))
		if len(found) != c.n || !slices.IsSorted(found) || c.n > 0 && found[0] != c.first {
			t.Errorf("%q %d: %d locks, %.3q", c.pattern, c.most, len(found), found)
		}
	}
	if found := findIn(slices.Values([]Hold(nil)), 0, "", 0); len(found) != 0 {
		t.Errorf("%v", found)
	}
}

func TestALeaseThatIsNotRenewedIsListedAsLate(t *testing.T) {
	w := newLockWorld(t)
	for i, line := range []string{"LOCK a", "LOCK b PX 20000", "LOCK c MAXHOLD 20000", "LOCK d LIMIT 3"} {
		w.client(uint64(i+1)).sends(line).answered(grantOfFence(7), nil)
	}
	for _, late := range []string{"", "a d"} {
		var got []string
		for _, h := range w.List(0) {
			if h.Late {
				got = append(got, h.Key)
			}
			if (h.Limit == 3) != (h.Key == "d") {
				t.Errorf("%s has the limit %d", h.Key, h.Limit)
			}
		}
		if strings.Join(got, " ") != late {
			t.Errorf("late: %q, want %q", got, late)
		}
		w.Time = w.Time.Add(16 * time.Second) // nothing renews
	}
}

// Clients that ask for a list, hang up and ask again make others wait for no list that nobody reads.
func TestAListIsNotMadeForAClientThatHasGone(t *testing.T) {
	for _, gone := range []bool{false, true} {
		w, made := newLockWorld(t), false
		c := w.client(1)
		w.show(c.caller, func(int64) []byte { made = true; return []byte("*0\r\n") })
		c.Answer(locktest.Numbers(7), nil) // the list waits for its turn
		c.Ended = gone
		w.Work()
		if made == gone {
			t.Errorf("made: %v; the client has gone: %v", made, gone)
		}
	}
}
