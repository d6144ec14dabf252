package session

import (
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/upstream"
)

// A session is the only receiver of what is sent for it, on its lane and on its pin. Each command has a slot for its reply, whose
// ID travels as the tag. The slot's handler does what is to be done with the reply besides passing it on.

// handler handles the replies of a slot. The session may have ended. Requires the session lock.
type handler interface {
	// take handles bytes of the replies to commands of the slot, in which n of them end; more: they end within one. It returns how
	// many commands that answers.
	take(at replies.ID, b []byte, n int, more bool) (answered int)

	// lost says that n commands get no reply: they were not sent, or, if sent is set, may have been executed.
	lost(at replies.ID, n int, sent bool)
}

// discard handles replies that the client is not to see.
type discard struct{}

func (discard) take(_ replies.ID, _ []byte, n int, _ bool) int { return n }

func (discard) lost(replies.ID, int, bool) {}

var _ handler = discard{}

// A replyHandler is the handler of one command whose reply means something to the session. The reply goes on to the client as it
// is, unless replace is set.
type replyHandler struct {
	s       *Session
	muted   bool                      // the client is not to see the reply
	whole   bool                      // done and replace get the whole reply, not just its start
	done    func(reply []byte)        // session locked; reply is valid during the call
	replace func(reply []byte) []byte // nil: the reply passes; implies whole
	unsent  []byte                    // the reply if the command cannot be sent; nil: the refusal
	head    []byte                    // the reply so far
}

// enoughHead is how much of a reply tells success from each failure that matters here.
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
	s.advance()
}

// receive handles bytes that have come for a slot.
func (s *Session) receive(at replies.ID, b []byte, n int, more bool) {
	h, due := s.slots.Handler(at)
	switch {
	case !due: // it has been given up
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
	s.advance()
}

// lose deals with n commands that get no reply. Those that were never sent are refused in words. For one that may have been
// executed the connection closes, as it would have if Redis itself had died; only the outcome of a script call is looked up.
func (s *Session) lose(at replies.ID, n int, sent bool) {
	h, due := s.slots.Handler(at)
	if !due {
		return
	}
	if _, call := h.(*scriptCall); sent && !call || !sent && s.rejected() {
		s.cutOff()
	}
	if h != nil {
		h.lost(at, n, sent)
	} else {
		s.refuse(at, n)
	}
	s.answered(at, n)
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
