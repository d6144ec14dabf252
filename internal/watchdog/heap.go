package watchdog

import "time"

// heap is a min-heap of leases by the instant at which something is due. Each lease knows its index, so that moving
// and removing one costs no search. It has four children per node and keeps the instants in its own array: at 100,000
// leases most of the cost is cache misses, and following the pointers would double it.
type heap []node

type node struct {
	due   time.Duration
	lease *Lease
}

const children = 4

func (h *heap) push(l *Lease, due time.Duration) {
	l.index = len(*h)
	*h = append(*h, node{due, l})
	h.up(l.index)
}

// fix moves the lease to the place of its new instant.
func (h *heap) fix(l *Lease, due time.Duration) {
	(*h)[l.index].due = due
	if !h.up(l.index) {
		h.down(l.index)
	}
}

func (h *heap) remove(l *Lease) {
	i, last := l.index, len(*h)-1
	moved := (*h)[last].lease
	h.swap(i, last)
	(*h)[last] = node{}
	*h = (*h)[:last]
	l.index = -1
	if i < last && !h.up(moved.index) {
		h.down(moved.index)
	}
}

func (h heap) up(i int) (moved bool) {
	for i > 0 {
		parent := (i - 1) / children
		if h[parent].due <= h[i].due {
			break
		}
		h.swap(i, parent)
		i, moved = parent, true
	}
	return moved
}

func (h heap) down(i int) {
	for {
		least := i
		first := i*children + 1
		for c := first; c < min(first+children, len(h)); c++ {
			if h[c].due < h[least].due {
				least = c
			}
		}
		if least == i {
			return
		}
		h.swap(i, least)
		i = least
	}
}

func (h heap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].lease.index, h[j].lease.index = i, j
}
