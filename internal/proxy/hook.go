package proxy

// A hook is the receiver of one command whose reply means something to the session. The reply goes on to the client as it
// is, unless replace is set.
type hook struct {
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

func (h *hook) Replies(b []byte, n int, more bool) {
	s := h.s
	s.mu.Lock()
	defer s.leave()
	if !s.gone() {
		h.take(b, more)
	}
	s.answered(n)
	s.advance()
}

// take handles bytes of the reply, with the session locked.
func (h *hook) take(b []byte, more bool) {
	if h.whole || h.replace != nil {
		h.head = append(h.head, b...)
		h.s.gathered = len(h.head)
	} else if room := enoughHead - len(h.head); room > 0 {
		h.head = append(h.head, b[:min(room, len(b))]...)
	}
	if !h.muted && h.replace == nil {
		h.s.emit(b)
		h.s.setMid(more)
	}
	if more {
		return
	}
	h.s.gathered = 0
	if h.done != nil {
		h.done(h.head)
	}
	if h.replace != nil && !h.muted {
		h.s.emit(h.replace(h.head))
	}
}

func (h *hook) Lost(n int, sent bool) {
	h.s.mu.Lock()
	defer h.s.leave()
	h.s.lost(n, sent, h)
	h.s.advance()
}

func (h *hook) Keeps() bool { return h.s.Keeps() }

func (h *hook) refused(n int) {
	h.s.resume()
	switch {
	case h.muted:
	case h.unsent != nil:
		h.s.emit(h.unsent)
	default:
		h.s.emit(h.s.refusal())
	}
	h.s.answered(n)
}

func (h *hook) Flush() { h.s.host.Flush() }

var _ receiver = (*hook)(nil)
