package session

// A client without credentials has the rights that Redis gives to a new connection at the moment of the client's arrival or of its
// RESET, as on a direct connection. Later demands of Redis on new connections do not change them.

// knock makes the session wait until Redis has said whether a new connection needs credentials now.
func (s *Session) knock() {
	if s.proxy.Settings.Lends() {
		return
	}
	s.wait = waitDoor
	s.proxy.Upstream.Knock(s.admitted)
}

// admitted ends the wait.
func (s *Session) admitted(era uint64) {
	s.mu.Lock()
	defer s.host.Flush()
	defer s.exit()
	if s.wait != waitDoor || s.gone() {
		return
	}
	s.wait = waitNone
	if s.era != era { // after a RESET: the lane belongs to clients that came before Redis asked for credentials
		s.era = era
		s.leaveLane()
	}
	s.guard.Restrict(s.proxy.Restricts(s.ident))
	if s.slots.Due() == 0 {
		s.releasePin()
	}
	s.advance()
}
