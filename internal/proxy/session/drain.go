package session

// This file says when a client leaves that is asked to: behind a reply if it goes on sending, so that no command of its
// crosses the end of the connection, else after a silence. It does no I/O and has no lock.

// A drainState is how far one client is. The zero value: it is not asked to leave.
type drainState uint8

const (
	drainAsked  drainState = 1 + iota // it has sent nothing since it was asked
	drainServed                       // it leaves as soon as it has all its replies
)

// drainSilence is the number of milliseconds without traffic after which a client counts as one that is not about to
// send.
const drainSilence = 500

// ask asks the client to leave. busy: replies to it are outstanding. It reports whether this is the first time.
func (s *drainState) ask(busy bool) bool {
	if *s != 0 {
		return false
	}
	if *s = drainAsked; busy {
		*s = drainServed
	}
	return true
}

// sent says that the client has sent something.
func (s *drainState) sent() {
	if *s == drainAsked {
		*s = drainServed
	}
}
