package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A request is a command from the reader to its reply.
//
// The reader (consume) makes it, and route decides its way: the functions of a policy (route.go and the files behind
// it) read the fields of the command, and set those of its way. As a rule it ends when route returns; the handlers of
// its reply have copied the few facts that they need. It is held longer:
//
//   - A command that a server of a cluster may refuse on a pin is routed anew then (Session.repeated).
//   - A lock command is held until the lock engine answers it (Session.locking).
//   - A large command is held until its last byte has come (Session.large), one of very many keys until it has been
//     divided (longParts), and a CLIENT TRACKING until the other client's connection has a number (trackTo).
//
// A run of plain commands for the lane has no request (batch): the hot path has nothing to decide.
//
// Requests are recycled. The session's mutex guards them, but while longParts divides one.
type request struct {
	s *Session

	// The command.
	row    *command.Row
	policy command.Policy // of this form of the command
	raw    []byte         // its bytes
	args   [][]byte       // of it, until route returns
	size   int            // of the command as it came, in bytes
	muted  bool           // the client gets no reply

	cluster.Aim // in front of a cluster

	// How long it lives.
	routing  bool              // route has not returned
	held     bool              // it outlives route
	own      []byte            // its bytes then
	attempts topology.Attempts // of a command that is routed anew
}

// ordinaryRow is that of the commands of a batch, and of the proxy's own commands; callRow that of the script calls of
// the lock engine.
var ordinaryRow, callRow = &command.Row{}, &command.Row{Writes: true}

// newRequest begins a command.
func (s *Session) newRequest(row *command.Row, raw []byte) *request {
	var r *request
	if last := len(s.spare) - 1; last >= 0 {
		r, s.spare = s.spare[last], s.spare[:last]
	} else {
		r = &request{s: s}
	}
	r.row, r.raw, r.size = row, raw, len(raw)
	return r
}

// maxSpare bounds the requests that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// release ends the life of a request: now, or when route returns if it has not.
func (r *request) release() {
	if r.held = false; r.routing {
		return
	}
	if s := r.s; len(s.spare) < maxSpare && cap(r.own) <= maxSpareRaw {
		*r = request{s: s, own: r.own[:0]}
		s.spare = append(s.spare, r)
	}
}

// keep holds a request that may be routed anew, with a copy of its bytes. The garbage collector ends it.
func (r *request) keep() {
	if r.held { // it is being routed anew
		r.attempts.Sent()
		return
	}
	r.held = true
	r.own = append(r.own[:0], r.raw...)
}

// routed has a function decide the way of the request, which ends then unless it is held.
func (r *request) routed(decide func(*request) bool) bool {
	r.routing = true
	done := decide(r)
	if r.routing, r.args, r.raw = false, nil, r.own; !r.held {
		r.release()
	}
	return done
}

// repeat routes a command again. false: the session waits.
func (s *Session) repeat() bool {
	r := s.repeated
	if !s.ready() {
		return false
	}
	s.repeated = nil
	if !s.route(r) {
		s.repeated = r
		return false
	}
	return s.ready() // it may have been refused already
}

// answerWith gives the proxy's own reply.
func (r *request) answerWith(b []byte) bool {
	if !r.muted {
		r.s.out.say(b)
	}
	return true
}

// handler handles a reply that passes as it is.
func (r *request) handler() reply.Handler {
	if r.muted {
		return reply.Discard{}
	}
	return nil
}

// forward sends the command, in these words. h handles the reply; nil: it passes to the client.
func (r *request) forward(raw []byte, h reply.Handler) { r.s.way.send(r, raw, h) }
