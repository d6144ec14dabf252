package session

import (
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/upstream"
)

// A session receives all replies to its commands, from its lane and from its pin. Each command has a slot for its reply, whose
// ID travels as the tag. The slot's handler does any work with the reply besides passing it on.

// discard handles replies that the client does not see.
type discard struct{}

func (discard) take(_ replies.ID, _ []byte, n int, _ bool) int { return n }

func (discard) lost(replies.ID, int, bool) {}

var _ handler = discard{}

// A replyHandler handles the reply to one command that changes the session. The reply passes to the client unchanged, unless replace is
// set.
type replyHandler struct {
	s       *Session
	muted   bool                      // the client does not see the reply
	whole   bool                      // done and replace get the whole reply, not just its start
	done    func(reply []byte)        // requires the session lock; reply is valid during the call
	replace func(reply []byte) []byte // nil: the reply passes; implies whole
	unsent  []byte                    // the reply if the command cannot be sent; nil: the refusal
	head    []byte                    // the reply so far
}

// enoughHead is the number of bytes of a reply that tell success from each failure that matters.
const enoughHead = 64

// take is handler.
func (h *replyHandler) take(at replies.ID, b []byte, n int, more bool) int {
	s := h.s
	if s.gone() {
		return n
	}
	if h.whole || h.replace != nil {
		h.head = append(h.head, b...)
		s.gathered = len(h.head)
	} else if space := enoughHead - len(h.head); space > 0 {
		h.head = append(h.head, b[:min(space, len(b))]...)
	}
	if !h.muted && h.replace == nil {
		s.put(at, b, more)
	}
	if more {
		return n
	}
	s.gathered = 0
	if h.done != nil {
		h.done(h.head)
	}
	if h.replace != nil && !h.muted {
		s.put(at, h.replace(h.head), false)
	}
	return n
}

// lost is handler.
func (h *replyHandler) lost(at replies.ID, n int, _ bool) {
	s := h.s
	if s.gone() {
		return
	}
	s.resume()
	switch {
	case h.muted:
	case h.unsent != nil:
		s.put(at, h.unsent, false)
	default:
		s.refuse(at, n)
	}
}

var _ handler = (*replyHandler)(nil)

// Replies is upstream.Receiver.
func (s *Session) Replies(tag uint64, b []byte, n int, more bool) {
	s.mu.Lock()
	defer s.exit()
	s.receive(replies.ID(tag), b, n, more)
	s.goOn()
	s.advance()
}

// receive handles bytes that have come for a slot.
func (s *Session) receive(at replies.ID, b []byte, n int, more bool) {
	h, due := s.slots.Handler(at)
	switch {
	case !due: // the slot has been given up
		return
	case h != nil:
		n = h.take(at, b, n, more)
	default:
		s.Burst += len(b)
		s.put(at, b, more)
	}
	s.answered(at, n)
}

// answered counts replies that have come in whole, and sends those whose turn it is.
func (s *Session) answered(at replies.ID, n int) {
	if !s.slots.Answer(at, n) {
		return
	}
	for b := s.slots.Next(); b != nil; b = s.slots.Next() {
		s.out.Append(b)
	}
	if s.slots.Due() == 0 {
		s.quiet()
	}
}

// Lost is upstream.Receiver.
func (s *Session) Lost(tag uint64, n int, sent bool) {
	s.mu.Lock()
	defer s.exit()
	s.lose(replies.ID(tag), n, sent)
	s.goOn()
	s.advance()
}

// lose handles n commands without a reply. A command that was never sent is refused with an error. For a command that may have run, the
// connection closes, as a dying Redis would close it. The lock engine decides about a script call.
func (s *Session) lose(at replies.ID, n int, sent bool) {
	h, due := s.slots.Handler(at)
	if !due {
		return
	}
	if e, ok := h.(*errand); ok {
		if n = 1; !sent && e.unsent() { // with ASKING it counts as two
			return
		}
	}
	if _, call := h.(*scriptCall); sent && !call || !sent && s.rejected() {
		s.cutOff()
	}
	if h != nil {
		h.lost(at, n, sent)
	} else {
		s.refuse(at, n)
	}
	if call, ok := h.(*scriptCall); !ok || !call.late {
		s.answered(at, n)
	}
}

// refuse answers n commands that were never sent.
func (s *Session) refuse(at replies.ID, n int) {
	words := s.refusal()
	for range n {
		s.put(at, words, false)
	}
}

// Keeps is upstream.Receiver.
func (s *Session) Keeps() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.gone()
}

// Flush is upstream.Receiver: the replies that came in together go out together.
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
		s.pin.waits = false
		if s.pin.size > 0 && !s.pin.InTx {
			s.pin.forgetTx()
		}
	}
	s.endVisit()
	s.readOn()
	if s.Weigh() {
		s.leaveLane()
	}
	switch {
	case s.gone():
		s.leaveLane()
		return
	case s.wait == waitGoodbye:
		s.cutOff()
		return
	case s.wait == waitQuiet:
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
	if s.slots.Due() == 0 {
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

// transmit sends the n commands of a slot. n is 0 if no reply is counted.
func (s *Session) transmit(conn connection, raw []byte, at replies.ID, n int) {
	var err error
	framed := s.pin != nil && s.pin.mode != readsReplies
	if framed {
		err = conn.Append(raw, nil, 0, 0)
	} else {
		err = conn.Append(raw, s, uint64(at), n)
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
