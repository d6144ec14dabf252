package proxy

// A client that has not authenticated has the rights that Redis gives a new connection at the moment it comes, as on a direct
// connection: also RESET is such a moment. What Redis demands of those who come later does not change them.

// knock has the session wait until Redis has said whether it lets in who comes now without credentials.
func (s *Session) knock() {
	if s.env.opts.lends() {
		return
	}
	s.wait = forDoor
	s.env.upstream.Knock(s.admitted)
}

// admitted ends the wait.
func (s *Session) admitted(era uint64) {
	s.mu.Lock()
	defer s.host.Flush()
	defer s.leave()
	if s.wait != forDoor || s.gone() {
		return
	}
	s.wait = nothing
	if s.era != era { // after a RESET: the lane is that of those who came before the door was shut
		s.era = era
		s.leaveLane()
	}
	s.guard.Restrict(s.env.restricts(s.ident))
	if s.pending == 0 {
		s.releasePin()
	}
	s.advance()
}
