package reply

// A Reply handles the reply to one command that changes the session. The reply passes to the client unchanged, unless
// Replace is set.
type Reply struct {
	Session Session
	Muted   bool                      // the client does not see the reply
	Whole   bool                      // Done and Replace get the whole reply, not just its start
	Done    func(reply []byte)        // reply is valid during the call
	Replace func(reply []byte) []byte // nil: the reply passes; implies Whole
	Unsent  func() []byte             // makes the reply if the command cannot be sent; nil: the refusal
	Missed  func()                    // called when the command could not be sent, before it is refused; nil: not called
	head    []byte                    // the reply so far
}

// enoughHead is the number of bytes of a reply that tell success from each failure that matters.
const enoughHead = 64

// Take implements Handler.
func (h *Reply) Take(at ID, b []byte, n int, more bool) int {
	s := h.Session
	if s.Gone() {
		return n
	}
	if h.Whole || h.Replace != nil {
		h.head = append(h.head, b...)
		s.Held(len(h.head))
	} else if space := enoughHead - len(h.head); space > 0 {
		h.head = append(h.head, b[:min(space, len(b))]...)
	}
	if !h.Muted && h.Replace == nil {
		s.Put(at, b, more)
	}
	if more {
		return n
	}
	s.Held(0)
	if h.Done != nil {
		h.Done(h.head)
	}
	if h.Replace != nil && !h.Muted {
		s.Put(at, h.Replace(h.head), false)
	}
	return n
}

// Lost implements Handler.
func (h *Reply) Lost(at ID, n int, sent bool) {
	s := h.Session
	if s.Gone() {
		return
	}
	s.Resume()
	if !sent && h.Missed != nil {
		h.Missed()
	}
	switch {
	case h.Muted:
	case h.Unsent != nil:
		s.Put(at, h.Unsent(), false)
	default:
		s.Refuse(at, n)
	}
}

var _ Handler = (*Reply)(nil)
