// Package reply brings the replies to a client, from the slots in which they are due, in the order of the commands, to
// the bytes that an engine writes. A Handler does work with replies besides passing them on: a reply that changes the
// session, a reply that is joined from several, a reply that may say that the command belongs on another server. It
// does no I/O. Everything in it requires the lock of the session.
package reply

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

	// Refusal is the reply to a command that was not sent.
	Refusal() []byte

	// Refuse answers n commands that were never sent.
	Refuse(at ID, n int)

	// Answered counts replies that have become whole.
	Answered(at ID, n int)

	// Held says how many bytes of replies are held until they are whole.
	Held(bytes int)

	// Resume ends the wait for a reply that decides how the next command travels.
	Resume()
}

// Discard handles replies that the client does not see.
type Discard struct{}

// Take implements Handler.
func (Discard) Take(_ ID, _ []byte, n int, _ bool) int { return n }

// Lost implements Handler.
func (Discard) Lost(ID, int, bool) {}

var _ Handler = Discard{}

// pass hands bytes of a reply to a handler; nil: to the client.
func pass(s Session, to Handler, at ID, b []byte, n int, more bool) int {
	if to != nil {
		return to.Take(at, b, n, more)
	}
	s.Pass(at, b, more)
	return n
}
