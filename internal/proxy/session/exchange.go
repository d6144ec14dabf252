package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A session receives all replies to its commands, from its lane and from its pin. Each command has a slot for its
// reply, whose ID travels as the tag. The slot's handler does any work with the reply besides passing it on.

// NextWrite hands output to the engine, which returns it with the next NextWrite or EndWrite; meanwhile the engine is
// the only writer. done is the output that it has written; nil: none. b is nil if there is nothing to write, or another
// goroutine is writing. last: after b the connection is to be closed.
func (s *Session) NextWrite(done []byte) (b []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.written(done)
	}
	if b = s.out.Outbox.Begin(); b == nil {
		return nil, s.life == cutOff && !s.out.Outbox.Writing()
	}
	s.active = s.proxy.Clock.Load()
	return b, s.life == cutOff
}

// EndWrite returns output that has been written, or that never will be.
func (s *Session) EndWrite(done []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.written(done)
}

// Replies implements upstream.Receiver.
func (s *Session) Replies(tag uint64, b []byte, n int, more bool) {
	s.mu.Lock()
	defer s.exit()
	s.usual = s.pin == nil
	if s.reach != met {
		s.reached()
	}
	s.receive(reply.ID(tag), b, n, more)
	s.advance()
}

// receive handles bytes that have come for a slot.
func (s *Session) receive(at reply.ID, b []byte, n int, more bool) {
	h, due := s.out.Slots.Handler(at)
	switch {
	case !due: // the slot has been given up
		return
	case h != nil:
		s.usual = false
		n = h.Take(at, b, n, more)
	default:
		s.weight.Burst += len(b)
		s.out.put(at, b, more)
	}
	s.Answered(at, n)
}

// Answered counts replies that have come in whole, and sends those whose turn it is. Requires the session lock.
func (s *Session) Answered(at reply.ID, n int) {
	if !s.out.Slots.Answer(at, n) {
		return
	}
	s.out.move()
	switch due := s.out.Slots.Due(); {
	case due == 0:
		s.quiet()
	case s.wait == waitTurn && due <= s.rests:
		s.wait = waitNone
	}
}

// Lost implements upstream.Receiver.
func (s *Session) Lost(tag uint64, n int, sent bool) {
	s.mu.Lock()
	defer s.exit()
	s.lose(reply.ID(tag), n, sent)
	s.advance()
}

// lose handles n commands without a reply. For a command that may have run, the connection closes, as a dying Redis
// would close it. The lock engine decides about a script call. A command that was not sent has a reply if Redis itself
// has refused the connection; else the connection closes, too.
func (s *Session) lose(at reply.ID, n int, sent bool) {
	h, due := s.out.Slots.Handler(at)
	if !due {
		return
	}
	asker := h
	if k, ok := h.(keeper); ok {
		if n = 1; k.Kept(sent) { // with ASKING it counts as two
			return
		}
		asker = k.Asker()
	}
	_, call := asker.(*scriptCall)
	switch {
	case !sent && s.rejected():
		s.CutOff()
	case sent && !call:
		s.abandon()
	case !sent && s.Refusal() == nil:
		s.giveUp()
	}
	if h != nil {
		h.Lost(at, n, sent)
	} else {
		s.Refuse(at, n)
	}
	s.Answered(at, n)
}

// A wrapper is a handler that its route has put around another one, which Asker returns.
type wrapper interface{ Asker() reply.Handler }

// A keeper handles the reply to a command that its route may send again.
type keeper interface {
	wrapper

	// Kept reports whether the command, which gets no reply, is sent again.
	Kept(sent bool) bool
}

// Refuse answers n commands that were never sent, unless the connection closes. Requires the session lock.
func (s *Session) Refuse(at reply.ID, n int) {
	if s.out.Gone() {
		return
	}
	words := s.Refusal()
	for range n {
		s.out.put(at, words, false)
	}
}

// Keeps implements upstream.Receiver.
func (s *Session) Keeps(failed bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waits(failed)
}

// Flush implements upstream.Receiver: the replies that came in together go out together.
func (s *Session) Flush() { s.host.Flush() }

var _ upstream.Receiver = (*Session)(nil)

// rejected reports whether Redis no longer accepts the session's credentials, because its user has been deleted for
// example. Redis itself closes the connections of such a user.
func (s *Session) rejected() bool {
	if s.pin != nil {
		return s.pin.conn.Rejected()
	}
	return s.lane != nil && s.lane.Rejected()
}

// quiet is called when nothing is outstanding any more.
func (s *Session) quiet() {
	s.unanswered, s.backlog = 0, budget.Backlog{}
	if s.pin != nil {
		s.pin.waits, s.pin.tx.opening = false, 0 // a MULTI that could not be sent opens nothing
	}
	s.endVisit()
	if s.weight.weigh() {
		s.leaveLane()
	}
	switch {
	case s.out.Gone():
		s.leaveLane()
		return
	case s.life == leaving:
		s.CutOff()
		return
	case s.wait == waitQuiet, s.wait == waitTurn:
		s.wait = waitNone
	}
	if s.pin != nil && s.pin.mode == readsFrames && !s.pin.subscribed() && !s.pin.debugs {
		s.readReplies()
	}
	if s.pin != nil && s.pin.outcome != nil {
		s.settleIdentity()
	}
	s.releasePin()
	if s.pin != nil && s.pin.conn.Finished() {
		s.CutOff() // the next commands belong on a connection that takes no more commands
	}
}

// transmit sends the n commands of a slot. n is 0 if no reply is counted.
func (s *Session) transmit(conn upstream.Connection, raw []byte, at reply.ID, n int) {
	var err error
	framed := s.pin != nil && s.pin.mode != readsReplies && conn == upstream.Connection(s.pin.conn)
	if s.reach == unmet && !conn.IsUp() && s.stranded() {
		s.miss() // its time begins with the command
	}
	if framed {
		err = conn.Append(raw, nil, 0, 0)
	} else {
		if s.out.Timed() {
			conn.Note(s.out.mark(at))
		}
		err = s.append(conn, raw, at, n)
	}
	if s.unanswered += len(raw); s.unanswered > budget.Free {
		s.countBacklog(conn, len(raw))
	}
	switch {
	case err == nil:
	case framed:
		s.pin.broken()
	default:
		s.lose(at, n, false)
	}
}

// append sends commands. Those for a lane leave when the session is unlocked, if its client is being read: the
// goroutine that reads it then writes them.
func (s *Session) append(conn upstream.Connection, raw []byte, at reply.ID, n int) error {
	lane, ok := conn.(*upstream.Lane)
	if !ok || !s.reading || s.due != nil {
		return conn.Append(raw, s, uint64(at), n)
	}
	due, err := lane.AppendDue(raw, s, uint64(at), n)
	if due {
		s.due = lane
	}
	return err
}

// Refusal is the reply to a command that was not sent; nil: it has none, and the connection closes. Requires the
// session lock.
func (s *Session) Refusal() []byte {
	if s.pin != nil {
		if b := s.pin.conn.Refusal(); b != nil {
			return b
		}
	} else if s.lane != nil {
		if s.lane.Full() {
			return s.proxy.Refuse(noLaneFree, "lanes", s.Addr)
		}
		if b := s.lane.Refusal(); b != nil {
			return b
		}
	}
	return s.way.Refusal()
}

// Gone implements reply.Session. Requires the session lock.
func (s *Session) Gone() bool { return s.out.Gone() }

// Put implements reply.Session. Requires the session lock.
func (s *Session) Put(at reply.ID, b []byte, more bool) { s.out.put(at, b, more) }

// Pass implements reply.Session. Requires the session lock.
func (s *Session) Pass(at reply.ID, b []byte, more bool) {
	s.weight.Burst += len(b)
	s.out.put(at, b, more)
}

// Held implements reply.Session. Requires the session lock.
func (s *Session) Held(bytes int) { s.gathered = bytes }

// Aside implements reply.Session. Requires the session lock.
func (s *Session) Aside(work func() (then func())) {
	s.afterUnlock = append(s.afterUnlock, func() {
		s.proxy.Aside(s.Addr, func() { s.Do(s.inTurn(work)) }, func() { s.Do(s.end) })
	})
}

// inTurn runs work when it is its turn to compute.
func (s *Session) inTurn(work func() func()) (then func()) {
	s.proxy.Turns.Take()
	defer s.proxy.Turns.Leave()
	return work()
}

var _ reply.Session = (*Session)(nil)
