package admission

import "container/list"

// Queue holds the requests that wait for places. Owners have their turns one after the other, and the requests of one
// owner are served in the order of their arrival. So an owner with many requests delays a request of another owner by
// one place.
type Queue[T any] struct {
	turns *list.List // of *line: the owners with requests
	lines map[string]*line[T]
	n     int
}

// line holds the requests of one owner.
type line[T any] struct {
	owner    string
	turn     *list.Element
	requests *list.List // of T
}

// A Ticket is one request in a Queue.
type Ticket[T any] struct {
	line *line[T]
	at   *list.Element // nil: it is not in the queue any more
}

// NewQueue returns an empty queue.
func NewQueue[T any]() *Queue[T] {
	return &Queue[T]{turns: list.New(), lines: map[string]*line[T]{}}
}

// Len is the number of waiting requests.
func (q *Queue[T]) Len() int { return q.n }

// Add queues a request.
func (q *Queue[T]) Add(owner string, request T) *Ticket[T] {
	l := q.lines[owner]
	if l == nil {
		l = &line[T]{owner: owner, requests: list.New()}
		l.turn = q.turns.PushBack(l)
		q.lines[owner] = l
	}
	q.n++
	t := &Ticket[T]{line: l}
	t.at = l.requests.PushBack(entry[T]{t, request})
	return t
}

type entry[T any] struct {
	ticket  *Ticket[T]
	request T
}

// Remove withdraws a request. It reports false if the request is not in the queue any more.
func (q *Queue[T]) Remove(t *Ticket[T]) bool {
	if t.at == nil {
		return false
	}
	q.take(t.line, t.at)
	return true
}

func (q *Queue[T]) take(l *line[T], at *list.Element) T {
	e := l.requests.Remove(at).(entry[T])
	e.ticket.at = nil
	q.n--
	if l.requests.Len() == 0 {
		q.turns.Remove(l.turn)
		delete(q.lines, l.owner)
	}
	return e.request
}

// Next takes out the next request of an owner that may have a place. It passes over only owners that may not.
func (q *Queue[T]) Next(may func(owner string) bool) (request T, ok bool) {
	for turn := q.turns.Front(); turn != nil; turn = turn.Next() {
		l := turn.Value.(*line[T])
		if may(l.owner) {
			q.turns.MoveToBack(turn)
			return q.take(l, l.requests.Front()), true
		}
	}
	return request, false
}
