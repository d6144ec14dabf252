package table

import (
	"slices"
	"testing"
)

// waitersOf returns that many waiters in a queue.
func waitersOf(n int) []*Waiter {
	all := make([]*Waiter, n)
	for i := range all {
		all[i] = &Waiter{queue: &Queue{}}
	}
	return all
}

func TestWorkIsDoneInSlices(t *testing.T) {
	x := New(Config{})
	all := waitersOf(2*sliceSize + 2)
	first, last := all[:2*sliceSize+1], all[2*sliceSize+1]
	first[sliceSize].queue = nil // it has left
	var done []*Waiter
	note := func(w *Waiter) { done = append(done, w) }
	x.each(slices.Clone(first), note)
	if len(done) != sliceSize || len(x.list) != 1 || x.list[0].Op != GoOn {
		t.Fatalf("%d at once, %v", len(done), x.list)
	}
	x.each([]*Waiter{last}, note) // in its turn
	x.GoOn()
	x.GoOn()
	if !slices.Equal(done, slices.Delete(all, sliceSize, sliceSize+1)) || len(x.list) != 2 {
		t.Fatalf("%d done, %v", len(done), x.list)
	}
}

func TestWorkAddsWork(t *testing.T) {
	x, all := New(Config{}), waitersOf(4)
	var done []*Waiter
	x.each(slices.Clone(all[:2]), func(w *Waiter) {
		done = append(done, w)
		x.each([]*Waiter{all[2+slices.Index(all, w)]}, func(w *Waiter) { done = append(done, w) })
	})
	if !slices.Equal(done, all) || len(x.list) != 0 {
		t.Fatalf("%v, and %v: it all fits into one slice", done, x.list)
	}
}
