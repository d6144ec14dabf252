package proxy

import (
	"lockproxy/internal/resp"
)

// local answers a command that is about the client and not about Redis's data. Nothing is outstanding. Requests that are
// malformed go to Redis, which refuses them in its own words and is not changed by them.
func (s *Session) local(row *command, raw []byte) bool {
	switch row.name {
	case "quit":
		s.quit()
		return true
	case "reset":
		if len(s.args) == 1 {
			s.resetState()
			return s.answer(reset)
		}
	case "client":
		if reply, done := s.clientCommand(row); done {
			return s.answer(reply)
		}
	}
	s.forward(raw, s.receiver(), 1)
	return true
}

var reset = []byte("+RESET\r\n")

// localPinned is local for a session that has a pin: what Redis keeps for the connection, it is told.
func (s *Session) localPinned(row *command, raw []byte) bool {
	switch {
	case argument(s.args, 0) == "quit":
		s.quit()
		return true
	case argument(s.args, 0) == "reset":
		s.query(raw, &hook{s: s, muted: s.muted, done: func(reply []byte) {
			if isReset(reply) {
				s.resetPin()
			}
		}})
		return true
	case row.name == "client" && argument(s.args, 1) == "setname" && len(s.args) == 3:
		name := string(s.args[2])
		s.query(raw, &hook{s: s, muted: s.muted, done: func(reply []byte) {
			if isOK(reply) {
				s.rename(name)
			}
		}})
		return true
	case row.name == "client" && (argument(s.args, 1) == "reply" || argument(s.args, 1) == "maint_notifications"):
		return s.local(row, raw)
	}
	s.query(raw, &hook{s: s, muted: s.muted})
	return true
}

// query sends one command on the pin, whichever way it is read, with a hook for its reply.
func (s *Session) query(raw []byte, h *hook) {
	if s.pin != nil && s.pin.mode == readsFrames {
		s.ask(raw, h)
		return
	}
	s.forward(raw, h, 1)
}

func isReset(reply []byte) bool { return string(reply) == string(reset) }

// quit answers OK and closes the connection, as Redis still does.
func (s *Session) quit() {
	words := ok
	if s.muted {
		words = nil
	}
	s.goodbye(words)
}

// resetState makes the session what it was when the client connected.
func (s *Session) resetState() {
	s.reply, s.name = replyOn, ""
	s.become(s.env.firstIdentity())
}

// resetPin is resetState for a session whose pin has been reset by Redis.
func (s *Session) resetPin() {
	p := s.pin
	p.endTx()
	p.keep = false
	p.subscriber = subscriber{}
	if p.mode == readsFrames {
		s.readReplies()
	}
	s.resetState()
	p.conn.Named("")
	if s.env.opts.lends() {
		p.keep = true // RESET took the proxy's own credentials off this connection: it cannot go back to the pool
	}
}

// clientCommand answers CLIENT SETNAME, GETNAME, SETINFO, REPLY and MAINT_NOTIFICATIONS. false: Redis is to answer.
func (s *Session) clientCommand(row *command) (reply []byte, done bool) {
	args := s.args
	switch argument(args, 1) {
	case "setname":
		if len(args) == 3 && validName(args[2]) {
			s.name = string(args[2])
			return ok, true
		}
	case "getname":
		if len(args) == 2 {
			if s.name == "" {
				return resp.AppendNull(nil, s.ident.Proto), true
			}
			return resp.AppendCommand(nil, s.name)[len("*1\r\n"):], true
		}
	case "setinfo":
		known := argument(args, 2) == "lib-name" || argument(args, 2) == "lib-ver"
		if len(args) == 4 && known && validName(args[3]) && s.env.lists("client", "setinfo") {
			return ok, true
		}
	case "reply":
		return s.replyCommand()
	case "maint_notifications":
		// Notifications of an upstream's maintenance concern the proxy's connections, not the client's. Clients ask on
		// connect and accept this answer.
		return resp.AppendError(nil, resp.Err, "unknown subcommand '"+string(args[1])+"'. Try CLIENT HELP."), true
	}
	return nil, false
}

// replyCommand is CLIENT REPLY ON|OFF|SKIP. Only ON is answered.
func (s *Session) replyCommand() (reply []byte, done bool) {
	if len(s.args) != 3 {
		return nil, false
	}
	switch argument(s.args, 2) {
	case "on":
		s.reply, s.muted = replyOn, false
		return ok, true
	case "off":
		s.reply = replyOff
		return nil, true
	case "skip":
		if s.reply == replyOn {
			s.reply = replySkip
		}
		return nil, true
	}
	return nil, false
}

// validName reports whether Redis accepts b as a client name: printable ASCII without spaces.
func validName(b []byte) bool {
	for _, c := range b {
		if c < '!' || c > '~' {
			return false
		}
	}
	return true
}
