package reply

import (
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Guarded handler looks for refusals of a server of a cluster among the replies to a command. The client gets no
// redirection.
type Guarded struct {
	Session Session
	To      Handler // of other replies; nil: they pass to the client
	Slot    int     // of the command: a refusal of another slot is none
	Read    func(reply []byte) topology.Refusal
	Refused func(at ID, why topology.Refusal) bool // false: the command has been refused for too long
	Unsent  func() bool                            // the command could not be sent; false: the client is told; nil: it always is

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
		if more && len(b) <= LongestRefusal {
			return 0
		}
		if more {
			g.begun, g.failed = true, nil
			return pass(g.Session, g.To, at, b, n, more)
		}
		if why := g.Read(b); why.Concerns(g.Slot) {
			if g.Refused(at, why) {
				return n
			}
			if why.Reason != topology.TryLate { // the client knows no other servers
				b = g.Session.Refusal()
			}
		}
	}
	g.begun = true
	return pass(g.Session, g.To, at, b, n, more)
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

var _ Handler = (*Guarded)(nil)
