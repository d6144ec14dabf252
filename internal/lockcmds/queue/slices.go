package queue

// This file does work for many waiters in slices, so that no event takes long however many waiters it concerns. It does
// no I/O, has no mutex and reads no clock.
//
//	Each ──► the first slice at once ──Hooks.GoOn──► the caller serves others ──► Continue ──► the next slice …

// Slice is how many waiters one event deals with: about a tenth of a millisecond.
const Slice = 128

// BacklogHooks are what a Backlog asks of its caller.
type BacklogHooks[T any] struct {
	GoOn  func()       // call Continue, when others have had their turn; it must not call the Backlog
	Waits func(T) bool // whether a waiter still waits: the work for the others falls away
}

// Backlog is the work that is left, in the order in which it came.
type Backlog[T any] struct {
	hooks BacklogHooks[T]
	tasks []task[T]
	going bool // Continue follows, or works
}

// task is something that is to be done for each of many waiters.
type task[T any] struct {
	waiters []T
	f       func(T)
}

// NewBacklog returns an empty backlog.
func NewBacklog[T any](h BacklogHooks[T]) *Backlog[T] { return &Backlog[T]{hooks: h} }

// Each calls f for those of the waiters that still wait: for some at once, for the others by Continue. f may call Each.
// The slice belongs to the Backlog.
func (b *Backlog[T]) Each(waiters []T, f func(T)) {
	if len(waiters) == 0 {
		return
	}
	b.tasks = append(b.tasks, task[T]{waiters, f})
	if !b.going {
		b.work()
	}
}

// Continue does the next slice.
func (b *Backlog[T]) Continue() {
	b.going = false
	b.work()
}

func (b *Backlog[T]) work() {
	b.going = true // what is added now is worked off in its turn
	left := Slice
	for len(b.tasks) > 0 && left > 0 {
		t := &b.tasks[0]
		n := min(left, len(t.waiters))
		some, f := t.waiters[:n], t.f
		if t.waiters = t.waiters[n:]; len(t.waiters) == 0 {
			if b.tasks = b.tasks[1:]; len(b.tasks) == 0 {
				b.tasks = nil
			}
		}
		left -= n
		for _, w := range some {
			if b.hooks.Waits(w) {
				f(w)
			}
		}
	}
	if b.going = len(b.tasks) > 0; b.going {
		b.hooks.GoOn()
	}
}
