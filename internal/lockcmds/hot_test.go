package lockcmds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

func TestHotLocksAreThoseWithTheLongestWaits(t *testing.T) {
	var h Hot
	now := time.Unix(1000, 0)
	mine, others := Account{}, Account{User: "other", DB: 1}
	for range 3 {
		h.Waited(mine, "a", time.Second, now)
	}
	h.Waited(mine, "b", 2*time.Second, now)
	h.Waited(others, "a", 5*time.Second, now)
	all := []HotLock{
		{Account: others, Key: "a", Waits: 1, Waited: 5 * time.Second},
		{Key: "a", Waits: 3, Waited: 3 * time.Second},
		{Key: "b", Waits: 1, Waited: 2 * time.Second},
	}
	for name, c := range map[string]struct{ got, want []HotLock }{
		"all": {h.Locks(10, now, nil), all}, "the first": {h.Locks(1, now, nil), all[:1]}, "mine": {h.Locks(10, now, &mine), all[1:]},
	} {
		if diff := cmp.Diff(c.want, c.got); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
	}
}

// What is shown is of the last one to two hours.
func TestHotLocksAreForgotten(t *testing.T) {
	var h Hot
	now := time.Unix(1000, 0)
	h.Waited(Account{}, "a", time.Second, now)
	h.Waited(Account{}, "a", time.Second, now.Add(tallyTime))
	if got := h.Locks(10, now.Add(2*tallyTime-1), nil); len(got) != 1 || got[0].Waited != 2*time.Second {
		t.Errorf("%+v", got)
	}
	if got := h.Locks(10, now.Add(2*tallyTime), nil); len(got) != 1 || got[0].Waited != time.Second {
		t.Errorf("%+v", got)
	}
	if got := h.Locks(10, now.Add(9*tallyTime), nil); len(got) != 0 {
		t.Errorf("%+v", got)
	}
}

// Clients choose the names of locks: a hundred thousand neither grow the list nor hide a lock that is hot.
func TestNamesDoNotGrowTheListOfHotLocks(t *testing.T) {
	var h Hot
	now := time.Unix(1000, 0)
	for i := range 100_000 {
		h.Waited(Account{}, fmt.Sprint("name", i, strings.Repeat("x", 100)), time.Second, now)
		if i%50 == 0 {
			h.Waited(Account{}, "hot", time.Second, now)
		}
	}
	if n := len(h.now.locks); n != tallied || len(h.now.order) != tallied {
		t.Errorf("%d locks", n)
	}
	got := h.Locks(1, now, nil)
	if len(got) != 1 || got[0].Key != "hot" || got[0].Waited < 1900*time.Second || got[0].Waited > 2000*time.Second {
		t.Errorf("%+v", got)
	}
	for i, c := range h.now.order {
		if c.at != i || h.now.locks[c.name] != c || i > 0 && c.rank < h.now.order[(i-1)/2].rank {
			t.Fatalf("the heap is out of order at %d", i)
		}
	}
}
