package session

import "github.com/lockproxy/lockproxy/internal/proxy/command"

// A request is a command from the reader (consume) to its reply. route decides its way. It is held longer:
//
//   - A command that a server of a cluster may refuse on a pin is routed anew then (repeated).
//   - A lock command is held until the lock engine answers it (locking).
//   - A large command is held until its last byte has come (large), one of very many keys until it has been divided,
//     and a CLIENT TRACKING until the other client's connection has a number (trackTo).
//
// A run of plain commands for the lane has no request (batch): the hot path has nothing to decide.
type request = command.Request

// ordinaryRow is that of the commands of a batch, and of the proxy's own commands; callRow that of the script calls of
// the lock engine.
var ordinaryRow, callRow = &command.Row{}, &command.Row{Writes: true}

// newRequest begins a command.
func (s *Session) newRequest(row *command.Row, raw []byte) *request {
	var r *request
	if last := len(s.spare) - 1; last >= 0 {
		r, s.spare = s.spare[last], s.spare[:last]
	} else {
		r = &request{}
	}
	r.Row, r.Raw, r.Size = row, raw, len(raw)
	return r
}

// maxSpare bounds the requests that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// release ends the life of a request: now, or when it has been routed.
func (s *Session) release(r *request) {
	if r.Held = false; r.Routing {
		return
	}
	if len(s.spare) < maxSpare && cap(r.Own) <= maxSpareRaw {
		*r = request{Own: r.Own[:0]}
		s.spare = append(s.spare, r)
	}
}

// routed has a function decide the way of a request, which ends then unless it is held.
func (s *Session) routed(r *request, decide func(*request) bool) bool {
	r.Routing = true
	done := decide(r)
	if r.Routing, r.Args, r.Raw = false, nil, r.Own; !r.Held {
		s.release(r)
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

// answer gives the proxy's own reply.
func (s *Session) answer(r *request, b []byte) bool {
	if !r.Muted {
		s.out.say(b)
	}
	return true
}
