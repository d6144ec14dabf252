package queue

import "iter"

// This file has a list whose operations cost O(1), with removal from anywhere. A value brings its nodes along, so that
// a list costs no allocation.

// Line is a list. The zero value is empty. It is not safe for several goroutines.
type Line[T any] struct {
	head, tail *Node[T]
	len        int
}

// Node is the place of a value in one line. The zero value is in none.
type Node[T any] struct {
	prev, next *Node[T]
	value      T
}

// Push appends a value by a node that is in no line.
func (l *Line[T]) Push(n *Node[T], value T) {
	*n = Node[T]{prev: l.tail, value: value}
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	l.len++
}

// Remove takes out the value of a node of this line.
func (l *Line[T]) Remove(n *Node[T]) {
	if n.prev == nil {
		l.head = n.next
	} else {
		n.prev.next = n.next
	}
	if n.next == nil {
		l.tail = n.prev
	} else {
		n.next.prev = n.prev
	}
	*n = Node[T]{}
	l.len--
}

// First is the value at the head; the zero value: the line is empty.
func (l *Line[T]) First() (value T) {
	if l.head != nil {
		value = l.head.value
	}
	return value
}

// AppendTo appends the values of the line in their order.
func (l *Line[T]) AppendTo(all []T) []T {
	for v := range l.Values() {
		all = append(all, v)
	}
	return all
}

// All returns the values of the line in their order.
func (l *Line[T]) All() []T { return l.AppendTo(make([]T, 0, l.len)) }

// Values yields the values of the line in their order. The line must not change meanwhile.
func (l *Line[T]) Values() iter.Seq[T] {
	return func(yield func(T) bool) {
		for n := l.head; n != nil && yield(n.value); n = n.next {
		}
	}
}

// Len is how many values there are.
func (l *Line[T]) Len() int { return l.len }
