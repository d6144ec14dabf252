package queue

import (
	"slices"
	"testing"
)

func TestLineRemovesFromAnywhere(t *testing.T) {
	var l line[int]
	nodes := make([]node[int], 5)
	for i := range nodes {
		l.push(&nodes[i], i)
	}
	for _, i := range []int{2, 0, 4} {
		l.remove(&nodes[i])
	}
	l.push(&nodes[4], 4)
	if got := l.all(); !slices.Equal(got, []int{1, 3, 4}) || l.first() != 1 || l.tail.value != 4 || l.len != 3 {
		t.Fatalf("%v, first %d, last %d, length %d", got, l.first(), l.tail.value, l.len)
	}
	for _, i := range []int{1, 3, 4} {
		l.remove(&nodes[i])
	}
	if l.head != nil || l.tail != nil || l.len != 0 || l.first() != 0 {
		t.Fatal("not empty")
	}
}
