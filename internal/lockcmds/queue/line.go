package queue

// line is a list whose operations cost O(1), with removal from anywhere. A value brings its nodes along.
type line[T any] struct {
	head, tail *node[T]
	len        int
}

type node[T any] struct {
	prev, next *node[T]
	value      T
}

func (l *line[T]) push(n *node[T], value T) {
	*n = node[T]{prev: l.tail, value: value}
	if l.tail == nil {
		l.head = n
	} else {
		l.tail.next = n
	}
	l.tail = n
	l.len++
}

func (l *line[T]) remove(n *node[T]) {
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

// first is the value at the head; the zero value: the line is empty.
func (l *line[T]) first() (value T) {
	if l.head != nil {
		value = l.head.value
	}
	return value
}

// appendTo appends the values of the line in their order.
func (l *line[T]) appendTo(all []T) []T {
	for n := l.head; n != nil; n = n.next {
		all = append(all, n.value)
	}
	return all
}

// all returns the values of the line in their order.
func (l *line[T]) all() []T { return l.appendTo(make([]T, 0, l.len)) }
