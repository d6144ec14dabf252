package reply

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A Handler handles the replies of a slot. The session may have ended.
type Handler interface {
	// Take handles bytes of the replies to commands of the slot, in which n of them end; more: they end within one. It
	// returns the number of commands that they answer.
	Take(at ID, b []byte, n int, more bool) (answered int)

	// Lost says that n commands get no reply: they were not sent, or, if sent is set, may have been executed.
	Lost(at ID, n int, sent bool)
}

// A Session is the side of a session to which handlers pass replies on.
type Session interface {
	// Gone reports whether the client gets no more than the output so far.
	Gone() bool

	// Put adds bytes to the replies of a slot; more: they end within one.
	Put(at ID, b []byte, more bool)

	// Pass is Put for a reply that comes from Redis unchanged.
	Pass(at ID, b []byte, more bool)

	// Refusal is the reply to a command that was not sent; nil: it has none, and the connection closes.
	Refusal() []byte

	// Refuse answers n commands that were never sent, unless the connection closes.
	Refuse(at ID, n int)

	// Answered counts replies that have become whole.
	Answered(at ID, n int)

	// Held says how many bytes of replies are held until they are whole.
	Held(bytes int)

	// Resume ends the wait for a reply that decides how the next command travels.
	Resume()

	// Aside runs work, whose cost a client chooses, without the session's lock, and then the function that it returns
	// with the lock, unless the client gets no more by then.
	Aside(work func() (then func()))
}

// A Sent is a command that has been sent, whose handler may have it sent again.
type Sent interface {
	// By is the connection by which it was sent.
	By() upstream.Connection

	// Again sends it in other words. Their reply comes in the place of its answer.
	Again(at ID, raw []byte)
}

// Discard handles replies that the client does not see.
type Discard struct{}

// Take implements Handler.
func (Discard) Take(_ ID, _ []byte, n int, _ bool) int { return n }

// Lost implements Handler.
func (Discard) Lost(ID, int, bool) {}

// Passing handles a reply that passes as it is, unless the client is not to see it.
func Passing(muted bool) Handler {
	if muted {
		return Discard{}
	}
	return nil
}

// A Reply handles the reply to one command that changes the session. The reply passes to the client unchanged, unless
// Replace is set.
type Reply struct {
	Session Session
	Muted   bool                      // the client does not see the reply
	Whole   bool                      // Done and Replace get the whole reply, not just its start
	Done    func(reply []byte)        // reply is valid during the call
	Replace func(reply []byte) []byte // nil: the reply passes; implies Whole
	Refusal func() []byte             // the reply if the command cannot be sent; nil: that of the session
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
	case h.Refusal != nil:
		s.Put(at, h.Refusal(), false)
	default:
		s.Refuse(at, n)
	}
}

// Aborted is the reply to an EXEC of which nothing was carried out because of an error.
func Aborted(err []byte) []byte {
	return slices.Concat([]byte("-EXECABORT Transaction discarded because of: "), err[1:])
}

var (
	_ Handler = Discard{}
	_ Handler = (*Reply)(nil)
)
