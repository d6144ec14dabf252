package table

// This file does work for many waiters in slices, so that no event takes long however many waiters it concerns.
//
//	Each ──► the first slice at once ──hooks.GoOn──► the caller serves others ──► Continue ──► the next slice …

// sliceSize is how many waiters one event deals with: about a tenth of a millisecond.
const sliceSize = 128

// backlogHooks are what a backlog asks of its caller.
type backlogHooks[T any] struct {
	GoOn  func()       // call Continue, when others have had their turn; it must not call the backlog
	Waits func(T) bool // whether a waiter still waits: the work for the others falls away
}

// backlog is the work that is left, in the order in which it came.
type backlog[T any] struct {
	hooks backlogHooks[T]
	tasks []task[T]
	going bool // Continue follows, or works
}

// task is something that is to be done for each of many waiters.
type task[T any] struct {
	waiters []T
	f       func(T)
}

// newBacklog returns an empty backlog.
func newBacklog[T any](h backlogHooks[T]) *backlog[T] { return &backlog[T]{hooks: h} }

// Each calls f for those of the waiters that still wait: for some at once, for the others by Continue. f may call Each.
// The slice belongs to the backlog.
func (b *backlog[T]) Each(waiters []T, f func(T)) {
	if len(waiters) == 0 {
		return
	}
	b.tasks = append(b.tasks, task[T]{waiters, f})
	if !b.going {
		b.work()
	}
}

// Continue does the next slice.
func (b *backlog[T]) Continue() {
	b.going = false
	b.work()
}

func (b *backlog[T]) work() {
	b.going = true // what is added now is worked off in its turn
	left := sliceSize
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
