package session

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// An outcome is Redis's answers to the identity changes that have run on a pin since the session last settled: to one,
// or to all of an EXEC. The session settles when nothing is outstanding.
type outcome struct {
	target        upstream.Identity // of the connection now
	authenticated bool              // it has new credentials
}

// settleIdentity moves the session to the identity that Redis has accepted. Nothing is outstanding.
func (s *Session) settleIdentity() {
	pin := s.pin
	o := pin.outcome
	pin.outcome = nil
	if o.authenticated {
		s.askForSelect(o.target)
		return
	}
	pin.sole = pin.sole && o.target.DB == s.ident.DB // else the user has the right to SELECT by now
	s.arrive(o.target)
}

// askForSelect is arrive for a session with new credentials. A connection is brought to another database than 0 by
// SELECT, for which the user may not have the right: no new connection can be of this identity then, and the session
// keeps the one that is. So Redis is asked on that.
func (s *Session) askForSelect(target upstream.Identity) {
	pin := s.pin
	if pin.sole = false; target.DB == 0 {
		s.arrive(target)
		return
	}
	s.wait = waitReply
	s.forward(ordinaryRow, resp.AppendCommand(nil, "SELECT", strconv.Itoa(target.DB)), &reply.Reply{
		Session: s, Muted: true, Missed: s.CutOff,
		Done: func(reply []byte) {
			s.Resume()
			switch pin.sole = !resp.IsOK(reply); {
			case s.pin != pin:
			case !pin.sole:
				s.arrive(target)
			case pin.conn.Bare(): // it is in database 0
				s.CutOff()
			case !pin.conn.Keep():
				s.proxy.NoPinFree(upstream.ErrPins, s.Addr)
				s.CutOff() // the client knows already that it is another user
			default:
				pin.login = false
				s.arrive(target)
			}
		},
	}, 1)
}

// arrive ends an identity change. The lane is opened at once, so that clients behind this one can be judged on it.
func (s *Session) arrive(target upstream.Identity) {
	s.become(target)
	if s.pin.login {
		s.onLane(ordinaryRow, s.pin.conn.At())
	}
}

// disown removes the credentials from AUTH and HELLO where all clients use the proxy's own. It returns the command to
// send instead, with r.Args to match, or nil if no part of it is left.
func (s *Session) disown(r *request) []byte {
	switch r.Row.Name {
	case "auth":
		if len(r.Args) == 2 || len(r.Args) == 3 {
			return nil
		}
	case "hello":
		if kept := withoutAuth(r.Args); len(kept) < len(r.Args) {
			r.Args = kept
			return resp.AppendCommand(nil, r.Args...)
		}
	}
	return r.Raw
}

// agree answers an AUTH of which no part is left. In a transaction a command that answers OK is queued for it.
func (s *Session) agree(r *request) bool {
	if d := s.way.Place(r); d != command.Undecided {
		return d == command.CarriedOut
	}
	switch {
	case !s.awaitQuiet():
		return false
	case s.subscriber():
		return s.answer(r, command.SubscriberRefusal("auth"))
	case s.pin != nil && s.pin.tx.inTx:
		s.pin.tx.count()
		s.way.Send(r, command.ReplyOn, reply.Passing(r.Muted))
		return true
	}
	return s.answer(r, []byte(resp.OK))
}

// become moves the session and its pin to another identity. The locks of another user end as if the client had gone.
func (s *Session) become(id upstream.Identity) {
	if clients.UserOf(s.ident.User) != clients.UserOf(id.User) {
		s.endLocks()
	}
	s.ident = id
	s.doubt()
	if s.pin != nil {
		s.pin.conn.Became(id)
	}
	if s.lane != nil && s.lane.Identity() != id {
		s.leaveLane()
	}
}

// rename keeps the client's name. byCommand: CLIENT SETNAME has given it.
func (s *Session) rename(name string, byCommand bool) {
	s.name, s.called = name, name
	if s.pin != nil {
		s.pin.conn.Named(name, byCommand)
	}
}
