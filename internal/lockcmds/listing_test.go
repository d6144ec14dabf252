package lockcmds

import (
	"fmt"
	"slices"
	"testing"
)

// source lists locks, the last first.
func source(held []Info) Source {
	return func(slice []Info, end int) ([]Info, int) {
		if end < 0 {
			end = len(held)
		}
		begin := max(0, end-Slice)
		return append(slice, held[begin:end]...), begin
	}
}

func keys(list []Info) (names []string) {
	for _, i := range list {
		names = append(names, i.Key)
	}
	return names
}

func TestFindIsSortedMatchedAndBounded(t *testing.T) {
	var held []Info
	for i := range 3 * Slice {
		held = append(held, Info{Key: fmt.Sprintf("k%04d", 3*Slice-i), Owner: "o"})
	}
	held = append(held, Info{Key: "other", Owner: "o"}, Info{Key: "other", Owner: "p"}, Info{Key: "other", Owner: "o"})
	for _, c := range []struct {
		pattern string
		most    int
		first   string
		n       int
	}{
		{"", 0, "k0001", 3*Slice + 2}, // each owner of a key once
		{"", 2, "k0001", 2},
		{"k000*", 0, "k0001", 9},
		{"other", 5, "other", 2},
		{"none", 0, "", 0},
	} {
		found := keys(Find(source(held), len(held), c.pattern, c.most))
		if len(found) != c.n || !slices.IsSorted(found) || c.n > 0 && found[0] != c.first {
			t.Errorf("%q %d: %d locks, %.3q", c.pattern, c.most, len(found), found)
		}
	}
	if found := Find(source(nil), 0, "", 0); len(found) != 0 {
		t.Errorf("%v", found)
	}
}
