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
	apply, clientName := identityChange(name, s.args)
	index := pin.queued
	pin.fresh = false
	pin.queued++
	h := &hook{s: s, muted: s.muted, done: func(reply []byte) {
		switch {
		case bytes.HasPrefix(reply, []byte("-")):
		case bytes.HasPrefix(reply, []byte("+QUEUED")):
			pin.changes = append(pin.changes, txChange{index: index, apply: apply})
		default:
			s.become(apply(s.ident))
			if clientName != nil {
				s.rename(*clientName)
			}
		}
		if s.wait == forReply {
			s.wait = nothing
		}
	}}
	// What follows must travel under the identity that this leads to.
	s.wait = forReply
	s.query(raw, h)
	if s.wait == forReply && s.pending == 0 { // refused at once
		s.wait = nothing
	}
	return true
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

// identityChange says what the command does if Redis accepts it, and the client name that it sets, if any. Redis rejects
// malformed ones, so nothing is checked here.
func identityChange(name string, args [][]byte) (apply func(upstream.Identity) upstream.Identity, clientName *string) {
	switch name {
	case "select":
		db, _ := strconv.Atoi(string(args[len(args)-1]))
		return func(id upstream.Identity) upstream.Identity {
			id.DB = db
			return id
		}, nil
	case "auth":
		user, password := credentials(args[1:])
		return func(id upstream.Identity) upstream.Identity {
			id.User, id.Password = user, password
			return id
		}, nil
	}
	return helloChange(args)
}

// helloChange reads HELLO [protover [AUTH username password] [SETNAME clientname]].
func helloChange(args [][]byte) (apply func(upstream.Identity) upstream.Identity, clientName *string) {
	proto, auth, user, password := 0, false, "", ""
	if len(args) > 1 {
		proto, _ = strconv.Atoi(string(args[1]))
	}
	for i := 2; i < len(args); i++ {
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
				clientName = &n
			}
			i++
		}
	}
	return func(id upstream.Identity) upstream.Identity {
		if proto != 0 {
			id.Proto = proto
		}
		if auth {
			id.User, id.Password = user, password
		}
		return id
	}, clientName
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
