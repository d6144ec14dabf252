package proxy

import (
	"bytes"
	"strconv"
	"strings"

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
	pin.fresh = false
	change := identityChange(name, s.args)
	if pin.inTx {
		pin.queue(txStep{apply: func(reply []byte) { s.identified(change, reply) }})
		s.forward(raw, s.receiver(), 1)
		return true
	}
	pin.queued++
	s.wait = forReply // what follows must travel under the identity that this leads to
	s.forward(raw, &hook{s: s, muted: s.muted, done: func(reply []byte) {
		s.resume()
		s.identified(change, reply)
	}}, 1)
	return true
}

// identified notes what Redis made of an identity change.
func (s *Session) identified(c idChange, reply []byte) {
	switch {
	case reply[0] != '-':
		s.become(c.apply(s.ident))
		if c.name != nil {
			s.rename(*c.name)
		}
	case c.inDoubt(reply):
		s.pin.keep = true
	}
}

// idChange is what AUTH, HELLO or SELECT does if Redis accepts it.
type idChange struct {
	apply   func(upstream.Identity) upstream.Identity
	name    *string // client name that it sets, if any
	options int     // of HELLO
}

// inDoubt reports whether a command that was refused may have done something all the same: Redis acts on HELLO's options
// one after another, so a bad one may follow an AUTH that went well. Such a connection must never serve anybody else.
func (c *idChange) inDoubt(reply []byte) bool {
	return c.options > 0 && !isUntouched(reply) && !bytes.HasPrefix(reply, []byte("-NOPROTO ")) &&
		!(c.options == 1 && bytes.HasPrefix(reply, []byte("-WRONGPASS ")))
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

// identityChange says what the command does if Redis accepts it. Redis rejects malformed ones, so nothing is checked here.
func identityChange(name string, args [][]byte) idChange {
	switch name {
	case "select":
		db, _ := strconv.Atoi(string(args[len(args)-1]))
		return idChange{apply: func(id upstream.Identity) upstream.Identity {
			id.DB = db
			return id
		}}
	case "auth":
		user, password := credentials(args[1:])
		return idChange{apply: func(id upstream.Identity) upstream.Identity {
			id.User, id.Password = user, password
			return id
		}}
	}
	return helloChange(args)
}

// helloChange reads HELLO [protover [AUTH username password] [SETNAME clientname]].
func helloChange(args [][]byte) idChange {
	var c idChange
	proto, auth, user, password := 0, false, "", ""
	if len(args) > 1 {
		proto, _ = strconv.Atoi(string(args[1]))
	}
	for i := 2; i < len(args); i++ {
		c.options++
		switch strings.ToLower(string(args[i])) {
		case "auth":
			if i+2 < len(args) {
				auth = true
				user, password = credentials(args[i+1 : i+3])
			}
			i += 2
		case "setname":
			if i+1 < len(args) {
				n := string(args[i+1])
				c.name = &n
			}
			i++
		}
	}
	c.apply = func(id upstream.Identity) upstream.Identity {
		if proto != 0 {
			id.Proto = proto
		}
		if auth {
			id.User, id.Password = user, password
		}
		return id
	}
	return c
}

// credentials of AUTH's arguments: a password, or a user and a password.
func credentials(args [][]byte) (user, password string) {
	switch len(args) {
	case 0:
		return "", ""
	case 1:
		return "default", string(args[0])
	default:
		return string(args[0]), string(args[1])
	}
}
