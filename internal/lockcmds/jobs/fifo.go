package jobs

// fifo is a queue whose operations cost O(1), amortized.
type fifo[T any] struct {
	items []T
	head  int // items before it have been taken
}

// kept is the capacity that an empty fifo keeps, so that a burst does not keep its memory.
const kept = 64

func (f *fifo[T]) len() int { return len(f.items) - f.head }

func (f *fifo[T]) push(v T) {
	if len(f.items) == cap(f.items) && f.head > len(f.items)/2 { // at least half of it can be used again
		n := copy(f.items, f.items[f.head:])
		clear(f.items[n:])
		f.items, f.head = f.items[:n], 0
	}
	f.items = append(f.items, v)
}

// pop takes the first item. There must be one.
func (f *fifo[T]) pop() T {
	var zero T
	v := f.items[f.head]
	f.items[f.head] = zero
	f.head++
	if f.head == len(f.items) {
		f.items, f.head = f.items[:0], 0
		if cap(f.items) > kept {
			f.items = nil
		}
	}
	return v
}
