package table

import (
	"slices"
	"testing"
)

func TestLineRemovesFromAnywhere(t *testing.T) {
	var l line[int]
	nodes := make([]node[int], 5)
	for i := range nodes {
		l.Push(&nodes[i], i)
	}
	for _, i := range []int{2, 0, 4} {
		l.Remove(&nodes[i])
	}
	l.Push(&nodes[4], 4)
	l.Push(&nodes[2], 2)
	if got := l.All(); !slices.Equal(got, []int{1, 3, 4, 2}) || l.First() != 1 || l.tail.value != 2 || l.len != 4 {
		t.Fatalf("%v, first %d, last %d, length %d", got, l.First(), l.tail.value, l.len)
	}
	for _, i := range []int{1, 3, 4, 2} {
		l.Remove(&nodes[i])
	}
	l.Push(&nodes[0], 0)
	l.Remove(&nodes[0])
	if l.head != nil || l.tail != nil || l.len != 0 || l.First() != 0 {
		t.Fatal("not empty")
	}
}
