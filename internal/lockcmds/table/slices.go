package table

// This file does work for many waiters in slices, so that no event takes long however many waiters it concerns.
//
//	each ──► the first slice at once ──the effect GoOn──► the caller serves others ──► GoOn ──► the next slice …

// sliceSize is how many waiters one event deals with: about a tenth of a millisecond.
const sliceSize = 128

// backlog is the work that is left, in the order in which it came.
type backlog struct {
	*effects

	tasks []task
	going bool // GoOn follows, or works
}

// task is something that is to be done for each of many waiters.
type task struct {
	waiters []*Waiter
	f       func(*Waiter)
}

// each calls f for those of the waiters that still wait: for some at once, for the others by GoOn. f may call each. The
// table keeps the slice.
func (b *backlog) each(waiters []*Waiter, f func(*Waiter)) {
	if len(waiters) == 0 {
		return
	}
	b.tasks = append(b.tasks, task{waiters, f})
	if !b.going {
		b.GoOn()
	}
}

// GoOn does the next slice, as the effect GoOn asks.
func (b *backlog) GoOn() {
	b.going = true // what is added now is worked off in its turn
	left := sliceSize
	for len(b.tasks) > 0 && left > 0 {
		first := &b.tasks[0]
		n := min(left, len(first.waiters))
		some, f := first.waiters[:n], first.f
		if first.waiters = first.waiters[n:]; len(first.waiters) == 0 {
			if b.tasks = b.tasks[1:]; len(b.tasks) == 0 {
				b.tasks = nil
			}
		}
		left -= n
		for _, w := range some {
			if w.Waits() {
				f(w)
			}
		}
	}
	if b.going = len(b.tasks) > 0; b.going {
		b.emit(Effect{Op: GoOn})
	}
}
