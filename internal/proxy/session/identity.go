package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// reidentify sends AUTH, HELLO or SELECT on the session's pin: Redis judges it, and its answer goes to the client. If
// Redis agrees, the pin and the session belong to another identity from then on.
//
// A login waits until all earlier commands are answered: newer servers do not answer a refused AUTH behind answers that
// are still to be written (see pins.Pin.AnswersRefusals). The next answer would count as that to the AUTH. In a
// transaction, answers are always still to be written, so there a login is refused.
func (s *Session) reidentify(r *request) bool {
	pin, name := s.pin, r.row.Name
	change := ReadChange(name, r.args)
	if (change.Auth || pin.InTx || pin.Opening > 0) && !s.awaitQuiet() {
		return false
	}
	if pin.fresh && s.out.Slots.Due() == 0 && s.visitFromPin(r, change) {
		return true
	}
	pin.fresh = false
	if pin.InTx && change.Auth && !pin.conn.AnswersRefusals() {
		return s.poison(r, notInTx)
	}
	if change.Hello && pin.full() {
		return s.poison(r, tooManyEdits)
	}
	if pin.InTx {
		step := Step{Apply: func(reply []byte) { s.judge(change, reply) }}
		if change.Hello {
			step.Rewrite = s.ownID
		}
		pin.queue(step)
		r.forward(r.raw, r.handler())
		return true
	}
	pin.count()
	s.wait = waitReply // the next commands must travel under the new identity
	h := &reply.Reply{Session: s, Muted: r.muted, Done: func(reply []byte) {
		s.Resume()
		s.judge(change, reply)
	}}
	if change.Hello {
		h.Replace = s.ownID
	}
	h.Missed = func() { s.refused.behind(name, h.Session.Refusal(), h.Muted) }
	r.forward(r.raw, h)
	return true
}

// An outcome is Redis's answers to the identity changes that have run on a pin since the session last settled: to one,
// or to all of an EXEC. The session settles when nothing is outstanding.
type outcome struct {
	target        upstream.Identity // of the connection now
	authenticated bool              // it has new credentials
}

// judge notes the outcome of an identity change. If the proxy cannot tell who is logged in now, the client gets the
// reply, and its connection closes.
func (s *Session) judge(c Change, reply []byte) {
	s.noteDenial(c, reply)
	pin := s.pin
	pin.spent = pin.spent || pin.conn.Bare() || c.mayHaveNamed(reply)
	switch {
	case c.unclear(reply):
		s.goodbye(nil)
	case reply[0] != '-':
		if c.Name != nil {
			s.rename(*c.Name, false)
		}
		if pin.outcome == nil {
			pin.outcome = &outcome{target: s.ident}
		}
		pin.outcome.target = c.apply(pin.outcome.target)
		pin.outcome.authenticated = pin.outcome.authenticated || c.Auth
	}
}

// settle moves the session to the identity that Redis has accepted. Nothing is outstanding.
//
// A user may have several passwords, or accept any: the rights are the same. The clients of such a user share their
// lanes. Therefore Redis is asked whether a password that it has accepted before is still good; if so, that password
// serves for all.
func (s *Session) settle() {
	pin, up := s.pin, s.proxy.Upstream
	o := pin.outcome
	pin.outcome = nil
	known, ok := up.Proven(o.target.User)
	switch {
	case !o.authenticated:
		s.arrive(o.target)
		return
	case !ok || known == o.target.Password:
		up.Prove(o.target.User, o.target.Password)
		s.arrive(o.target)
		return
	}
	s.wait = waitReply
	s.forward(ordinary, resp.AppendCommand(nil, "AUTH", o.target.User, known), &reply.Reply{
		Session: s, Muted: true, Missed: s.CutOff, // the client knows already that it is another user
		Done: func(reply []byte) {
			s.Resume()
			if resp.IsOK(reply) {
				o.target.Password = known
			} else {
				up.Prove(o.target.User, o.target.Password)
			}
			if s.pin == pin {
				s.arrive(o.target)
			}
		},
	}, 1)
}

// arrive ends an identity change. The lane is opened at once, so that clients behind this one can be judged on it.
func (s *Session) arrive(target upstream.Identity) {
	s.become(target)
	if s.pin.login {
		s.turnTo(s.pin.conn.At())
		s.onLane(ordinary)
	}
}

// disown removes the credentials from AUTH and HELLO where all clients use the proxy's own. It returns the command to
// send instead, with s.args to match, or nil if no part of it is left.
func (s *Session) disown(r *request) []byte {
	switch r.row.Name {
	case "auth":
		if len(r.args) == 2 || len(r.args) == 3 {
			return nil
		}
	case "hello":
		if kept := Disown(r.args); len(kept) < len(r.args) {
			r.args = kept
			return resp.AppendCommand(nil, r.args...)
		}
	}
	return r.raw
}

// agree answers an AUTH of which no part is left. In a transaction a command that answers OK is queued for it.
func (s *Session) agree(r *request) bool {
	switch {
	case !s.awaitQuiet():
		return false
	case s.subscriber():
		return r.answerWith(Refusal("auth"))
	case s.pin != nil && s.pin.InTx:
		s.pin.count()
		r.forward(command.ReplyOn, r.handler())
		return true
	}
	return r.answerWith([]byte(resp.OK))
}

// startOver makes the session the identity that a new client has.
func (s *Session) startOver() {
	s.become(s.proxy.FirstIdentity())
	s.knock()
}

// become moves the session and its pin to another identity.
func (s *Session) become(id upstream.Identity) {
	s.ident = id
	s.clusterSubs.Again(id.Proto)
	s.guard.Restrict(s.proxy.Restricts(id))
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
