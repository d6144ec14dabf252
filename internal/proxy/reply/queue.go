// Package reply brings the replies to a client, from the slots in which they are due, in the order of the commands, to
// the bytes that an engine writes. A Handler does work with replies besides passing them on: a reply that changes the
// session, or a reply that is joined from several. It does no I/O. Everything in it requires the lock of the session.
package reply

import "slices"

// ID names a slot. A queue never uses an ID again, so an answer that comes too late finds no slot.
type ID uint64

// A Queue holds the replies for one client. The zero value is empty. C is the type of a connection, which answers
// commands. Replies without a handler pass to the client unchanged.
//
// The commands may be answered by several connections, by the proxy itself, and in any order.
//
//	Add(connection, handler, n)   n commands take the last slot; the connection returns the slot's ID with the replies
//	Hold, Say                     the proxy itself answers: later, or at once
//	Put, Answer                   bytes of a reply have come, replies have become whole
//	Push                          out-of-band bytes go out between two replies
//	Next                          the bytes that may leave now
//
// A slot stands for a run of commands: those that one connection answers and one handler handles. So a pipeline takes
// one slot, and an ordinary command costs no allocation. The bytes of the first slot go out at once; the bytes of a
// later slot wait in it.
type Queue[C comparable] struct {
	slots  []slot[C] // in the order of the commands; those before head have left
	head   int
	gone   ID     // slots that have been removed from the front of slots
	due    int    // replies still to come
	pushes []byte // wait for the end of a reply
}

// slot is the place of the replies to a run of commands.
type slot[C comparable] struct {
	from    C // the connection that answers; the zero value: the proxy itself, or no server is known yet
	handler Handler
	n       int    // replies still to come
	mid     bool   // the bytes so far end within a reply
	b       []byte // bytes that have come before their turn
}

// Add takes a place for the replies to n commands that are sent now. Commands with the same connection and handler as
// the ones before share their slot. from is the zero value if no server is known for the command yet.
func (q *Queue[C]) Add(from C, handler Handler, n int) ID {
	q.due += n
	if last := len(q.slots) - 1; last >= q.head {
		if s := &q.slots[last]; s.n > 0 && s.from == from && s.handler == handler {
			s.n += n
			return q.id(last)
		}
	}
	s := q.append()
	s.from, s.handler, s.n = from, handler, n
	return q.id(len(q.slots) - 1)
}

// Hold takes a place for a reply that the proxy itself gives later.
func (q *Queue[C]) Hold() ID {
	q.due++
	q.append().n = 1
	return q.id(len(q.slots) - 1)
}

// Say takes a place for a known reply. True: the reply may leave at once, and the caller sends it.
func (q *Queue[C]) Say(b []byte) (now bool) {
	last := len(q.slots) - 1
	if last < q.head {
		return true
	}
	if q.slots[last].n > 0 {
		q.append()
		last = len(q.slots) - 1
	}
	q.slots[last].b = append(q.slots[last].b, b...)
	return false
}

// append adds a slot without replies. The space of slots that have left is used again before more is taken.
func (q *Queue[C]) append() *slot[C] {
	if q.head > 0 && len(q.slots) == cap(q.slots) && q.head >= len(q.slots)/2 {
		n := copy(q.slots, q.slots[q.head:])
		clear(q.slots[n:]) // their space is that of the first ones now
		q.slots, q.gone, q.head = q.slots[:n], q.gone+ID(q.head), 0
	}
	last := len(q.slots)
	if last < cap(q.slots) {
		q.slots = q.slots[:last+1] // a slot that has left has nothing but space
	} else {
		q.slots = append(q.slots, slot[C]{})
	}
	return &q.slots[last]
}

func (q *Queue[C]) id(i int) ID { return q.gone + ID(i) + 1 }

// slot returns the slot of that ID, nil if it has left or been answered, and its index.
func (q *Queue[C]) slot(id ID) (*slot[C], int) {
	i := int(id - q.gone - 1) // of an ID that has left long ago: negative
	if i < q.head || i >= len(q.slots) || q.slots[i].n == 0 {
		return nil, 0
	}
	return &q.slots[i], i
}

// Handler returns the handler of the replies in a slot. False: no reply is due there any more.
func (q *Queue[C]) Handler(id ID) (h Handler, ok bool) {
	s, _ := q.slot(id)
	if s == nil {
		return h, false
	}
	return s.handler, true
}

// Put adds bytes to a slot's replies; more: they end within one. True: they may leave at once, and the caller sends
// them. Otherwise the queue keeps a copy. Nothing may be due to go out: see Next.
func (q *Queue[C]) Put(id ID, b []byte, more bool) (now bool) {
	s, i := q.slot(id)
	if s == nil {
		return false
	}
	s.mid = more
	if i == q.head {
		return true
	}
	s.b = append(s.b, b...)
	return false
}

// Answer says that n replies of a slot have become whole. False: they were not due. Else the caller sends the bytes
// that Next returns.
func (q *Queue[C]) Answer(id ID, n int) bool {
	s, _ := q.slot(id)
	if s == nil {
		return false
	}
	if n > s.n {
		panic("BUG: more replies than commands")
	}
	s.n -= n
	q.due -= n
	return true
}

// Push returns whether out-of-band bytes may go out at once. Otherwise they wait for the end of a reply.
func (q *Queue[C]) Push(b []byte) (now bool) {
	if !q.Mid() {
		return true
	}
	q.pushes = append(q.pushes, b...)
	return false
}

// Mid reports whether the bytes that have left end within a reply.
func (q *Queue[C]) Mid() bool { return q.head < len(q.slots) && q.slots[q.head].mid }

// Next returns bytes that may leave now; nil: there are none. They are good until the queue is used again.
func (q *Queue[C]) Next() []byte {
	if len(q.pushes) > 0 && !q.Mid() {
		b := q.pushes
		q.pushes = nil
		return b
	}
	for q.head < len(q.slots) {
		s := &q.slots[q.head]
		if b := s.b; len(b) > 0 {
			s.b = emptied(b)
			return b
		}
		if s.n > 0 {
			return nil
		}
		*s = slot[C]{b: s.b}
		q.head++
	}
	if q.head > 0 {
		q.gone += ID(q.head)
		q.head = 0
		if q.slots = q.slots[:0]; cap(q.slots) > maxKept {
			q.slots = nil
		}
	}
	return nil
}

// maxKept bounds the slots that an empty queue keeps.
const maxKept = 32

// A slot that has left keeps its space for the next one, if it is small: a pipeline to several servers has many replies
// that come before their turn.
const spareBytes = 128

func emptied(b []byte) []byte {
	if cap(b) > spareBytes {
		return nil
	}
	return b[:0]
}

// Grow makes space for n more slots.
func (q *Queue[C]) Grow(n int) { q.slots = slices.Grow(q.slots, n) }

// First returns the slot that a connection answers next. It serves connections that do not return IDs. False: nothing
// is due from that connection.
func (q *Queue[C]) First(from C) (id ID, handler Handler, ok bool) {
	for i := q.head; i < len(q.slots); i++ {
		if s := &q.slots[i]; s.n > 0 && s.from == from {
			return q.id(i), s.handler, true
		}
	}
	return 0, handler, false
}

// Due is the number of replies that are still to come. An empty queue has none.
func (q *Queue[C]) Due() int { return q.due }

// Slots is the number of slots in use.
func (q *Queue[C]) Slots() int { return len(q.slots) - q.head }

// Forget drops the bytes that wait: the client gets no more replies. The replies of connections stay due, and those of
// the proxy itself do not.
func (q *Queue[C]) Forget() {
	q.pushes = nil
	var nobody C
	for i := q.head; i < len(q.slots); i++ {
		s := &q.slots[i]
		if s.b = nil; s.from == nobody {
			q.Answer(q.id(i), s.n)
		}
	}
}
