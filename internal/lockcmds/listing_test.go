package lockcmds

import (
	"fmt"
	"slices"
	"testing"
)

// source lists locks, the last first.
func source(held []lockInfo) lockSource {
	return func(slice []lockInfo, end int) ([]lockInfo, int) {
		if end < 0 {
			end = len(held)
		}
		begin := max(0, end-listSlice)
		return append(slice, held[begin:end]...), begin
	}
}

func keys(list []lockInfo) (names []string) {
	for _, i := range list {
		names = append(names, i.Key)
	}
	return names
}

func TestFindIsSortedMatchedAndBounded(t *testing.T) {
	var held []lockInfo
	for i := range 3 * listSlice {
		held = append(held, lockInfo{Key: fmt.Sprintf("k%04d", 3*listSlice-i), Owner: "o"})
	}
	held = append(held, lockInfo{Key: "other", Owner: "o"}, lockInfo{Key: "other", Owner: "p"}, lockInfo{Key: "other", Owner: "o"})
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
		found := keys(findLocks(source(held), len(held), c.pattern, c.most))
		if len(found) != c.n || !slices.IsSorted(found) || c.n > 0 && found[0] != c.first {
			t.Errorf("%q %d: %d locks, %.3q", c.pattern, c.most, len(found), found)
		}
	}
	if found := findLocks(source(nil), 0, "", 0); len(found) != 0 {
		t.Errorf("%v", found)
	}
}
