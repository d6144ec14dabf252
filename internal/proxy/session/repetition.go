package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster a command on a pin is routed anew if the pin's server refuses it for another server's sake, and
// the pin is given up. Requests on lanes are sent again as pause.go says.

// rerouted returns the handler of a kept request that is routed anew if the pin's server refuses it, or cannot be
// reached. read reads a refusal. to gets other replies.
func (p *pinned) rerouted(
	r *request, slot int, read func(reply []byte) topology.Refusal, to reply.Handler,
) reply.Handler {
	refused := func(_ reply.ID, why topology.Refusal) bool {
		if why.Reason == topology.Vanished {
			p.lookFor(r)
			return true
		}
		return p.elsewhere(r, why)
	}
	unsent := func() bool {
		if p.tx.watching || p.keep {
			p.s.abandon() // the state is lost; no command behind this one may run without it
			return true
		}
		return !p.conn.Hopeless() && p.elsewhere(r, topology.Refusal{})
	}
	return &reply.Guarded{Session: p.s, To: to, Slot: slot, Read: read, Refused: refused, Unsent: unsent}
}

var vanished = resp.AppendRawError(nil, "UNBLOCKED the stream key no longer exists")

// lookFor asks the pin's server for the keys of a command that has waited there for a key which has vanished. If the
// key was moved, the server refuses the question, and the command is routed anew. Otherwise the key was deleted, and
// the client is told.
func (p *pinned) lookFor(r *request) {
	s := p.s
	s.wait = waitReply
	told := &reply.Reply{
		Session: s, Muted: r.muted, Refusal: func() []byte { return vanished },
		Done: func([]byte) { s.Resume() }, Replace: func([]byte) []byte { return vanished },
	}
	r.forward(r.question(), &reply.Guarded{
		Session: s, To: told, Slot: r.slot, Read: topology.ReadRefusal,
		Refused: func(_ reply.ID, why topology.Refusal) bool { return p.elsewhere(r, why) },
	})
}

// elsewhere gives up the pin, and has its only command routed anew. false: the command has been refused for too long.
func (p *pinned) elsewhere(r *request, why topology.Refusal) bool {
	if !p.s.routeAnew(r, p.conn.At(), why) {
		return false
	}
	// A server that has been demoted closes the connection of its waiters.
	if why.Reason == topology.TryLate && p.s.pin == p {
		p.s.pin = nil
		p.discard()
		return true
	}
	p.yield()
	return true
}

// yield returns a pin on which nothing is outstanding and that has no state.
func (p *pinned) yield() {
	s := p.s
	if s.pin == p && !p.keep && !p.spent && p.borrowed == 0 {
		if p.mode == readsFrames {
			s.readReplies()
		}
		s.pin = nil
		s.proxy.Counters.PinReasons.Add(p.reason, -1)
		p.conn.Release()
	}
}

// routeRepeated routes the command again. false: the session waits.
func (s *Session) routeRepeated() bool {
	if !s.ready() {
		return false
	}
	r := s.repeated
	s.repeated = nil
	if !s.route(r) {
		s.repeated = r
		return false
	}
	return s.ready() // it may have been refused already
}

// routeAnew has a command routed anew when the view has been refreshed. false: it has been refused for too long.
func (s *Session) routeAnew(r *request, from upstream.Node, why topology.Refusal) bool {
	if why.Reason != topology.NotRefused {
		r.attempts.Held(s.cluster.FailoverWait())
	}
	if s.out.Gone() || !r.attempts.Refused(s.cluster.FailoverWait()) {
		return false
	}
	r.goTo(s.noteRefusal(why, from))
	s.repeated = r
	s.wait = waitReply
	s.Later(from, r.attempts.Pause(), s.Resume)
	return true
}
