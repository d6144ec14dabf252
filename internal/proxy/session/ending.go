package session

import (
	"lockproxy/internal/resp"
)

// protocolError answers the guard's error behind all earlier replies, and closes the connection.
func (s *Session) protocolError(err error) {
	s.proxy.Counters.ProtocolErrors.Add(1)
	words := resp.AppendRawError(nil, "ERR "+err.Error())
	if s.reply != replyOn {
		words = words[:0]
	}
	s.goodbye(words)
}

// goodbye sends the last reply after the outstanding ones and closes the connection.
func (s *Session) goodbye(words []byte) {
	s.say(words)
	s.wait = waitGoodbye
	if s.slots.Due() == 0 {
		s.closeAfterOutput()
	}
}

// Hungup says that the client's connection is gone.
func (s *Session) Hungup() {
	s.mu.Lock()
	defer s.exit()
	s.end()
}

// end releases everything that the session has. Replies that are still outstanding on a lane are dropped as they come.
func (s *Session) end() {
	if s.ended {
		return
	}
	s.ended = true
	s.proxy.Clients.Remove(s.ID)
	s.giveUp()
	s.forget()
	s.host.Hangup()
}

// cutOff ends a session whose connection to Redis is gone. The client gets the replies so far, and its connection closes, as a
// direct connection would.
func (s *Session) cutOff() {
	if s.gone() {
		return
	}
	s.wait = waitGoodbye
	s.closeAfterOutput()
	s.giveUp()
}

func (s *Session) giveUp() {
	s.provided(0)
	s.slots.Forget()
	s.in.Forget()
	if s.streaming {
		s.large.timer.Stop()
	}
	if s.cancelPinWait != nil {
		s.cancelPinWait()
		s.cancelPinWait = nil
	}
	pin := s.pin
	if pin != nil {
		pin.discard()
		s.pin = nil
	}
	if s.slots.Due() == 0 {
		s.leaveLane()
	}
	for _, e := range s.engines {
		e.Ended(s.ID)
		s.proxy.Locks.Leave(e)
	}
	for _, l := range s.losses {
		l.End()
	}
	s.engines, s.losses = nil, nil
	if pin != nil && pin.mode != readsReplies {
		s.loseFrames(pin, true)
	}
}

// EOF says that the client has ended its side, although it may still read. As in Redis, its commands run and are answered up to
// the first one that must wait for other clients. It returns false if the session has ended.
func (s *Session) EOF() bool {
	s.mu.Lock()
	defer s.exit()
	s.eof = true
	s.atEOF()
	return !s.ended
}

// Leaving says that the client has ended its side before all its bytes have been read. Reading continues after Resume. It returns
// false if the session has ended: a client that waits for other clients waits no longer, even if commands follow.
func (s *Session) Leaving() bool {
	s.mu.Lock()
	defer s.exit()
	s.leaving = true
	s.atEOF()
	return !s.ended
}

// atEOF ends a session whose client has ended its side, when no command is left to run. A wait for other clients
// is withdrawn with everything behind it: no client is left to use a lock or an element of a list.
func (s *Session) atEOF() {
	if s.leaving && s.awaitsOthers() {
		s.eof = true // commands that have not been read would not run
	}
	if !s.eof || s.gone() {
		return
	}
	switch {
	case s.streaming:
		s.cutOff() // the large command stays incomplete
	case s.wait == waitLock && s.slots.Due() == 0:
		s.end()
	case s.wait == waitPin && !s.hasty:
		s.end() // on a direct connection it would be waiting by now, or have been answered
	case s.pin != nil && s.pin.waits:
		s.pin.conn.CloseWrite() // as below, although more commands are to follow
	case s.wait != waitNone:
	case s.pin != nil && (s.slots.Due() > 0 || s.pin.mode == readsRaw):
		// Only Redis knows whether this is a command that waits. It sees the end as if the client were connected there:
		// it executes what it has got, answers what it can, and closes.
		s.pin.conn.CloseWrite()
	default:
		s.goodbye(nil)
	}
}

// awaitsOthers reports whether the session waits for an action of other clients.
func (s *Session) awaitsOthers() bool {
	return s.wait == waitLock && s.slots.Due() == 0 || s.wait == waitPin && !s.hasty || s.pin != nil && s.pin.waits
}

// Drain ends the session when it has its replies, unless it has used a lock command and so may hold a lock. A session that waits
// for other clients, on a list or a channel, ends at once.
func (s *Session) Drain() {
	s.mu.Lock()
	defer s.exit()
	switch {
	case s.ended, len(s.engines) > 0, s.wait == waitGoodbye && (s.pin == nil || !s.pin.waits):
	case s.wait == waitPin, s.pin != nil && (s.pin.mode != readsReplies || s.pin.waits):
		s.end()
	default:
		s.goodbye(nil)
	}
}
