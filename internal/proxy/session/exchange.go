package session

import (
	"sync"

	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/ears"
	"github.com/lockproxy/lockproxy/internal/proxy/errands"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A session receives all replies to its commands, from its lane and from its pin. Each command has a slot for its reply, whose
// ID travels as the tag. The slot's handler does any work with the reply besides passing it on.

// NextWrite hands output to the engine, which returns it with the next NextWrite or EndWrite; meanwhile the engine is the only writer. done is the
// output that it has written; nil: none. b is nil if there is nothing to write, or another goroutine is writing. last: after b the connection is to
// be closed.
func (s *Session) NextWrite(done []byte) (b []byte, last bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if done != nil {
		s.written(done)
	}
	if b = s.Out.Begin(); b == nil {
		return nil, s.closing && !s.Out.Writing()
	}
	s.active = s.proxy.Clock.Load()
	return b, s.closing
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
	s.receive(reply.ID(tag), b, n, more)
	s.GoOn()
	s.advance()
}

// receive handles bytes that have come for a slot.
func (s *Session) receive(at reply.ID, b []byte, n int, more bool) {
	h, due := s.Slots.Handler(at)
	switch {
	case !due: // the slot has been given up
		return
	case h != nil:
		s.usual = false
		n = h.Take(at, b, n, more)
	default:
		s.Burst += len(b)
		s.Put(at, b, more)
	}
	s.answered(at, n)
}

// answered counts replies that have come in whole, and sends those whose turn it is.
func (s *Session) answered(at reply.ID, n int) {
	if !s.Slots.Answer(at, n) {
		return
	}
	s.Move()
	switch due := s.Slots.Due(); {
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
	s.GoOn()
	s.advance()
}

// lose handles n commands without a reply. A command that was never sent is refused with an error. For a command that may have run, the
// connection closes, as a dying Redis would close it. The lock engine decides about a script call.
func (s *Session) lose(at reply.ID, n int, sent bool) {
	h, due := s.Slots.Handler(at)
	if !due {
		return
	}
	asker := h
	if e, ok := h.(*errands.Errand); ok {
		if n = 1; !sent && e.Unsent() { // with ASKING it counts as two
			return
		}
		asker = e.For()
	}
	if _, call := asker.(*scriptCall); sent && !call || !sent && s.rejected() {
		s.cutOff()
	}
	if h != nil {
		h.Lost(at, n, sent)
	} else {
		s.refuse(at, n)
	}
	if call, ok := h.(*scriptCall); !ok || !call.late {
		s.answered(at, n)
	}
}

// refuse answers n commands that were never sent.
func (s *Session) refuse(at reply.ID, n int) {
	words := s.refusal()
	for range n {
		s.Put(at, words, false)
	}
}

// Keeps implements upstream.Receiver.
func (s *Session) Keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.Gone()
}

// Flush implements upstream.Receiver: the replies that came in together go out together.
func (s *Session) Flush() { s.host.Flush() }

var _ upstream.Receiver = (*Session)(nil)

// rejected reports whether Redis no longer accepts the session's credentials, because its user has been deleted for example. Redis
// itself closes the connections of such a user.
func (u *pinning) rejected() bool {
	s := u.s
	if u.pin != nil {
		return u.pin.conn.Rejected()
	}
	return s.lane != nil && s.lane.Rejected()
}

// quiet is called when nothing is outstanding any more.
func (s *Session) quiet() {
	s.unanswered, s.backlog = 0, budget.Backlog{}
	if s.pin != nil {
		s.pin.waits, s.pin.Opening = false, 0 // a MULTI that could not be sent opens nothing
	}
	s.endVisit()
	if s.Weigh() {
		s.leaveLane()
	}
	switch {
	case s.Gone():
		s.leaveLane()
		return
	case s.wait == waitGoodbye:
		s.cutOff()
		return
	case s.wait == waitQuiet, s.wait == waitTurn:
		s.wait = waitNone
	}
	if s.pin != nil && s.pin.mode == readsFrames && !s.pin.Subscribed() {
		s.readReplies()
	}
	if s.pin != nil && s.pin.conclude != nil {
		conclude := s.pin.conclude
		s.pin.conclude = nil
		conclude()
	}
	s.releasePin()
	if s.pin != nil && s.pin.conn.Finished() {
		s.cutOff() // the next commands belong on a connection that takes no more commands
		return
	}
	if s.Slots.Due() == 0 {
		s.serveWanted()
	}
}

// conn returns the connection of the next command.
func (s *Session) conn() connection {
	if s.pin != nil {
		return s.pin.conn
	}
	return s.onLane()
}

// laneTo is the session's lane to a server of a cluster; nil: no server is known.
func (l *lanes) laneTo(at upstream.Node) connection {
	if at == upstream.AnyNode {
		return nil
	}
	l.turnTo(at)
	return l.onLane()
}

// scriptConn is the connection on which a script has been answered: in a cluster always a lane, because a pin may be at another server.
func (l *lanes) scriptConn() connection {
	if l.s.Clustered() {
		return l.onLane()
	}
	return l.s.conn()
}

// connection is a lane or a pin.
type connection interface {
	Append(b []byte, to upstream.Receiver, tag uint64, n int) error
	Progress() (appended, written int64)
	Scripts() *upstream.ScriptSet
	Rejected() bool
	Note(m *metrics.Mark)
}

// transmit sends the n commands of a slot. n is 0 if no reply is counted.
func (s *Session) transmit(conn connection, raw []byte, at reply.ID, n int) {
	var err error
	framed := s.pin != nil && s.pin.mode != readsReplies && conn == connection(s.pin.conn)
	if framed {
		err = conn.Append(raw, nil, 0, 0)
	} else {
		if s.Timed() {
			conn.Note(s.Mark(at))
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
		s.proxy.Counters.Refused.Add(int64(n))
		s.lose(at, n, false)
	}
}

// append sends commands. Those for a lane leave when the session is unlocked, if its client is being read: the goroutine that reads it then writes them.
func (l *lanes) append(conn connection, raw []byte, at reply.ID, n int) error {
	s := l.s
	lane, ok := conn.(*upstream.Lane)
	if !ok || !l.reading || l.due != nil {
		return conn.Append(raw, s, uint64(at), n)
	}
	due, err := lane.AppendDue(raw, s, uint64(at), n)
	if due {
		l.due = lane
	}
	return err
}

// refusal is the reply to a command that was not sent.
func (l *lanes) refusal() []byte {
	s := l.s
	if s.pin != nil {
		if b := s.pin.conn.Refusal(); b != nil {
			return b
		}
	} else if l.lane != nil {
		if l.lane.Full() {
			return s.proxy.Refuse(shared.NoLaneFree, "max-lanes", s.Addr)
		}
		if b := l.lane.Refusal(); b != nil {
			return b
		}
	}
	return shared.NoUpstream
}

// Pass implements reply.Session.
func (d *side) Pass(at reply.ID, b []byte, more bool) {
	d.Burst += len(b)
	d.Put(at, b, more)
}

// Refusal implements reply.Session.
func (d *side) Refusal() []byte { return (*Session)(d).refusal() }

// Refuse implements reply.Session.
func (d *side) Refuse(at reply.ID, n int) { (*Session)(d).refuse(at, n) }

// Answered implements reply.Session.
func (d *side) Answered(at reply.ID, n int) { (*Session)(d).answered(at, n) }

// Held implements reply.Session.
func (d *side) Held(bytes int) { d.gathered = bytes }

// Aside implements reply.Gatherer.
func (d *side) Aside(work func() (then func())) {
	s := (*Session)(d)
	s.afterUnlock = append(s.afterUnlock, func() {
		s.proxy.Aside(s.Addr, func() { d.Do(s.inTurn(work)) }, func() { d.Do(s.end) })
	})
}

// inTurn runs work when it is its turn to compute.
func (s *Session) inTurn(work func() func()) (then func()) {
	s.proxy.Turns.Take()
	defer s.proxy.Turns.Leave()
	return work()
}

// Resume implements reply.Session.
func (d *side) Resume() { (*Session)(d).resume() }

// Take implements errands.Session.
func (d *side) Take(at upstream.Node, h reply.Handler) reply.ID {
	d.unanswered += slotCost
	if at == upstream.AnyNode {
		return d.Slots.Add(nil, h, 1)
	}
	d.turnTo(at)
	return d.Slots.Add(d.onLane(), h, 1)
}

// Transmit implements errands.Session.
func (d *side) Transmit(at upstream.Node, raw []byte, id reply.ID, n int) {
	d.turnTo(at)
	(*Session)(d).transmit(d.onLane(), raw, id, n)
}

// Lose implements errands.Session.
func (d *side) Lose(id reply.ID) { (*Session)(d).lose(id, 1, false) }

// Hopeless implements errands.Session.
func (d *side) Hopeless() bool { return d.lane != nil && d.lane.Hopeless() }

// Await implements errands.Session.
func (d *side) Await() {
	if d.wait == waitNone {
		d.wait = waitQuiet
	}
}

// Leave implements errands.Session.
func (d *side) Leave(which func(at upstream.Node) bool) { d.leaveIf(which) }

// GiveUp implements errands.Session.
func (d *side) GiveUp(id reply.ID) { d.Slots.Answer(id, 1) }

// Open implements ears.Session.
func (d *side) Open(at upstream.Node, then func(c ears.Conn, refusal []byte)) (ears.Conn, func() bool) {
	ask := upstream.Ask{ID: d.ident, At: at, Owner: d.owner}
	if conn := d.proxy.Upstream.Acquire(ask); conn != nil {
		return d.ear(conn), nil
	}
	d.proxy.Counters.PinWaits.Add(1)
	return nil, d.proxy.Upstream.AwaitPin(ask, func(conn *upstream.Pin, err error) {
		if err != nil {
			d.proxy.Counters.PinTimeouts.Add(1)
			then(nil, d.proxy.NoPinFree(err, d.Addr))
			return
		}
		then(d.ear(conn), nil)
	})
}

// ear counts a connection of ears among the pins.
func (d *side) ear(conn *upstream.Pin) ears.Conn {
	d.proxy.Counters.PinReasons.Add(earReason, 1)
	return ear{conn, sync.OnceFunc(func() { d.proxy.Counters.PinReasons.Add(earReason, -1) })}
}

const earReason = "subscribe"

type ear struct {
	*upstream.Pin
	end func()
}

// Discard implements ears.Conn.
func (e ear) Discard() {
	e.end()
	e.Pin.Discard()
}

// Push implements ears.Session.
func (d *side) Push(b []byte) { d.Message(b) }

// CutOff implements ears.Session.
func (d *side) CutOff() { (*Session)(d).cutOff() }

// Flush implements ears.Session.
func (d *side) Flush() { d.host.Flush() }

var _ ears.Session = (*side)(nil)

// Do implements errands.Session.
func (d *side) Do(f func()) bool { return (*lockSession)(d).Do(f) }

var _ errands.Session = (*side)(nil)
