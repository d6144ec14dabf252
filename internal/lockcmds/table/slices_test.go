package table

import (
	"slices"
	"testing"
)

func TestWorkIsDoneInSlices(t *testing.T) {
	goOn, gone := 0, map[int]bool{}
	b := newBacklog(backlogHooks[int]{GoOn: func() { goOn++ }, Waits: func(w int) bool { return !gone[w] }})
	var done, all []int
	for i := range 2*sliceSize + 1 {
		all = append(all, i)
	}
	gone[sliceSize] = true
	b.Each(slices.Clone(all), func(w int) { done = append(done, w) })
	if len(done) != sliceSize || goOn != 1 {
		t.Fatalf("%d at once, %d calls of GoOn", len(done), goOn)
	}
	b.Each([]int{-1}, func(w int) { done = append(done, w) }) // in its turn
	b.Continue()
	b.Continue()
	all = append(slices.Delete(all, sliceSize, sliceSize+1), -1)
	if !slices.Equal(done, all) || goOn != 2 {
		t.Fatalf("%v, %d calls of GoOn", done, goOn)
	}
}

func TestWorkAddsWork(t *testing.T) {
	var done []int
	b := newBacklog(backlogHooks[int]{GoOn: func() { t.Fatal("it all fits into one slice") }, Waits: func(int) bool { return true }})
	b.Each([]int{1, 2}, func(w int) {
		done = append(done, w)
		b.Each([]int{10 * w}, func(w int) { done = append(done, w) })
	})
	if !slices.Equal(done, []int{1, 2, 10, 20}) {
		t.Fatal(done)
	}
}
