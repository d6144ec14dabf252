package proxy

import (
	"bytes"

	"lockproxy/internal/proxy/idchange"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// reidentify sends AUTH, HELLO or SELECT on the session's pin: Redis judges it, its answer goes to the client, and if Redis
// agreed, the pin and the session belong to another identity from then on.
func (s *Session) reidentify(name string, raw []byte) bool {
	pin := s.pin
	if (pin.inTx || pin.opening > 0) && !s.awaitQuiet() {
		return false
	}
	change := idchange.Read(name, s.args)
	if pin.fresh && s.pending == 0 && s.visitFromPin(change, raw) {
		return true
	}
	pin.fresh = false
	if pin.inTx {
		pin.queue(txStep{apply: func(reply []byte) { s.identified(change, reply) }})
		s.forward(raw, s.receiver(), 1)
		return true
	}
	pin.queued++
	s.wait = forReply // what follows must travel under the identity that this leads to
	h := &hook{s: s, muted: s.muted, done: func(reply []byte) {
		s.resume()
		s.identified(change, reply)
	}}
	if change.Hello {
		h.replace = s.ownID
	}
	s.forward(raw, h, 1)
	return true
}

// identified notes what Redis made of an identity change.
func (s *Session) identified(c idchange.Change, reply []byte) {
	switch {
	case reply[0] != '-':
		s.become(c.Apply(s.ident))
		if c.Name != nil {
			s.rename(*c.Name)
		}
	case c.MayHaveAuthenticated(reply):
		s.keepLogin()
	case c.MayHaveNamed(reply):
		s.askName()
	}
}

// askName finds out what name a refused HELLO has left on the session's pin.
func (s *Session) askName() {
	pin := s.pin
	s.wait = forReply
	s.forward(getName, &hook{s: s, muted: true, whole: true, done: func(reply []byte) {
		s.resume()
		switch v, _, err := resp.Decode(reply); {
		case err != nil || s.pin != pin:
		case !v.IsError():
			s.rename(string(v.Str))
		case isNoAuth(reply):
			pin.spent = true
		default:
			s.keepLogin()
		}
	}}, 1)
}

var getName = resp.AppendCommand(nil, "CLIENT", "GETNAME")

func isNoAuth(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-NOAUTH ")) }

// keepLogin keeps the session's pin for the rest of the session: nobody else may have it, and no other connection can be made
// like it.
func (s *Session) keepLogin() {
	s.pin.keep = true
	if !s.pin.conn.Keep() {
		s.emit(noPinFree(upstream.ErrPins))
		s.cutOff()
	}
}

// disown takes the credentials out of AUTH and HELLO where clients use the proxy's own, whatever they say. It returns the
// command to send instead, with s.args to match, or nil if there is nothing left of it.
func (s *Session) disown(name string, raw []byte) []byte {
	switch name {
	case "auth":
		if len(s.args) == 2 || len(s.args) == 3 {
			return nil
		}
	case "hello":
		for i := 2; i+2 < len(s.args); i++ {
			if argument(s.args, i) == "auth" {
				s.args = append(s.args[:i], s.args[i+3:]...)
				return resp.AppendCommand(nil, s.args...)
			}
		}
	}
	return raw
}

// become moves the session and its pin to another identity.
func (s *Session) become(id upstream.Identity) {
	s.ident = id
	s.guard.Restrict(s.env.restricts(id))
	if s.pin != nil {
		s.pin.conn.Became(id)
	}
	if s.lane != nil && s.lane.Identity() != id {
		s.leaveLane()
	}
}

// rename keeps the client's name.
func (s *Session) rename(name string) {
	s.name = name
	if s.pin != nil {
		s.pin.conn.Named(name)
	}
}
