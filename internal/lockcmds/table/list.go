package table

import "iter"

// This file has a list whose operations cost O(1), with removal from anywhere. A value brings its nodes along, so that
// a list costs no allocation.

// line is a list. The zero value is empty. It is not safe for several goroutines.
type line[T any] struct {
	head, tail *node[T]
	len        int
}

// node is the place of a value in one line. The zero value is in none.
type node[T any] struct {
	prev, next *node[T]
	value      T
}

// Push appends a value by a node that is in no line.
func (l *line[T]) Push(n *node[T], value T) {
	*n = node[T]{prev: l.tail, value: value}
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	l.len++
}

// Remove takes out the value of a node of this line.
func (l *line[T]) Remove(n *node[T]) {
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
	*n = node[T]{}
	l.len--
}

// First is the value at the head; the zero value: the line is empty.
func (l *line[T]) First() (value T) {
	if l.head != nil {
		value = l.head.value
	}
	return value
}

// AppendTo appends the values of the line in their order.
func (l *line[T]) AppendTo(all []T) []T {
	for v := range l.Values() {
		all = append(all, v)
	}
	return all
}

// All returns the values of the line in their order.
func (l *line[T]) All() []T { return l.AppendTo(make([]T, 0, l.len)) }

// Values yields the values of the line in their order. The line must not change meanwhile.
func (l *line[T]) Values() iter.Seq[T] {
	return func(yield func(T) bool) {
		for n := l.head; n != nil && yield(n.value); n = n.next {
		}
	}
}

// Len is how many values there are.
func (l *line[T]) Len() int { return l.len }

// lines is lists by a key of theirs. A list exists while it has a value.
type lines[K comparable, T any] map[K]*line[T]

// Push appends a value to a list by a node that is in no line.
func (x lines[K, T]) Push(k K, n *node[T], value T) {
	l := x[k]
	if l == nil {
		l = &line[T]{}
		x[k] = l
	}
	l.Push(n, value)
}

// Remove takes out the value of a node of that list.
func (x lines[K, T]) Remove(k K, n *node[T]) {
	l := x[k]
	if l.Remove(n); l.Len() == 0 {
		delete(x, k)
	}
}

// First is the value at the head of a list; the zero value: there is no such list.
func (x lines[K, T]) First(k K) (value T) {
	if l := x[k]; l != nil {
		value = l.First()
	}
	return value
}
