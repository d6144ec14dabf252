package reply

import (
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// ClusterDown is the reply to a command for a server of a cluster that cannot be reached, while others can.
var ClusterDown = resp.AppendRawError(nil, "CLUSTERDOWN no server of the slot is reachable, nothing was done")

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

// A Guarded handler looks for refusals of a server of a cluster among the replies to a command. The client gets no
// redirection.
type Guarded struct {
	Session Session
	To      Handler // of other replies; nil: they pass to the client
	Slot    int     // of the command: a refusal of another slot is none
	Read    func(reply []byte) topology.Refusal
	Refused func(at ID, why topology.Refusal) bool // false: the command has been refused for too long
	Unsent  func() bool                            // it could not be sent; false: the client is told; nil: always

	begun  bool
	failed []byte // the reply so far, if it is an error
}

// LongestRefusal is the number of bytes of an error that may be a refusal. A longer one passes as it comes.
const LongestRefusal = 64 << 10

// Take implements Handler.
func (g *Guarded) Take(at ID, b []byte, n int, more bool) int {
	if !g.begun && b[0] == '-' || len(g.failed) > 0 {
		g.failed = append(g.failed, b...)
		b = g.failed
	}
	g.begun = true
	switch {
	case len(g.failed) == 0:
	case more && len(b) <= LongestRefusal:
		return 0
	case more:
		g.failed = nil
	default:
		why := g.Read(b)
		switch {
		case !why.Concerns(g.Slot):
		case g.Refused(at, why):
			return n
		case why.Reason != topology.TryLate: // the client knows no other servers
			b = ClusterDown
		}
	}
	if g.To != nil {
		return g.To.Take(at, b, n, more)
	}
	g.Session.Pass(at, b, more)
	return n
}

// Lost implements Handler.
func (g *Guarded) Lost(at ID, n int, sent bool) {
	if !sent && g.Unsent != nil && g.Unsent() {
		return
	}
	if g.To != nil {
		g.To.Lost(at, n, sent)
		return
	}
	g.Session.Refuse(at, n)
}

var (
	_ Handler = Discard{}
	_ Handler = (*Reply)(nil)
	_ Handler = (*Guarded)(nil)
)
