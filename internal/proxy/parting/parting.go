// Package parting says when a client leaves that is asked to: behind a reply if it goes on sending, so that no command of its crosses the end of
// the connection, else after a silence. It does no I/O and has no lock.
package parting

// A State is how far one client is. The zero value: it is not asked to leave.
type State uint8

const (
	asked  State = 1 + iota // it has sent nothing since it was asked
	served                  // it leaves behind a reply
)

// silence is the number of milliseconds without traffic after which a client counts as one that is not about to send.
const silence = 500

// Ask asks the client to leave. busy: replies to it are outstanding. It reports whether this is the first time.
func (s *State) Ask(busy bool) bool {
	if *s != 0 {
		return false
	}
	if *s = asked; busy {
		*s = served
	}
	return true
}

// Sent says that the client has sent something.
func (s *State) Sent() {
	if *s == asked {
		*s = served
	}
}

// BehindReply reports whether the client leaves as soon as it has all its replies.
func (s State) BehindReply() bool { return s == served }

// Silent reports whether a client without traffic for that number of milliseconds leaves.
func Silent(idle int64) bool { return idle >= silence }
