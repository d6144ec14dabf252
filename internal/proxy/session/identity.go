package session

import (
	"bytes"
	"cmp"
	"strconv"

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
		s.poison(r, notInTx)
		return true
	}
	if change.Hello && pin.full() {
		s.poison(r, tooManyEdits)
		return true
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
// or to all of an EXEC. Questions to Redis wait until nothing is outstanding, because the later changes decide the
// questions.
type outcome struct {
	target        upstream.Identity // of the connection now, as far as the answers tell
	changed       bool              // target differs from the session's identity, or its user has logged in anew
	authenticated bool              // it carries new credentials
	doubtful      bool              // a refused HELLO may have logged in
	doubt         Change            // that HELLO; empty: there was more than one
	named         bool              // a refused HELLO may have left a name
}

// judge notes the outcome of an identity change.
func (s *Session) judge(c Change, reply []byte) {
	s.noteDenial(c, reply)
	if s.pin.conn.Bare() {
		s.pin.spent = true
		if reply[0] == '-' && !c.mayHaveAuthenticated(reply) {
			return // it says nothing of the client's own
		}
	}
	s.pin.conclude = s.settle
	o := &s.pin.outcome
	switch {
	case reply[0] != '-':
		if c.Name != nil {
			s.rename(*c.Name, false)
		}
		if !o.changed {
			o.target, o.changed = s.ident, true
		}
		o.target = c.apply(o.target)
		if c.Auth {
			o.authenticated, o.doubtful = true, false
		}
	case c.mayHaveAuthenticated(reply):
		if o.doubt = c; o.doubtful {
			o.doubt = Change{}
		}
		o.doubtful = true
	case c.mayHaveNamed(reply):
		o.named = true
	}
}

// settle moves the session to the identity that Redis has accepted, as soon as all facts are known.
//
// A user may have several passwords, or accept any: the rights are the same. The clients of such a user share their
// lanes. Therefore Redis is asked whether a password that it has accepted before is still good; if so, that password
// serves for all. A user who may not SELECT stays in the database that was selected before. No other connection can be
// made like this one, so the session keeps it. Nothing is outstanding.
func (s *Session) settle() {
	pin := s.pin
	o := pin.outcome
	pin.outcome = outcome{}
	switch {
	case o.doubtful:
		if o.changed {
			s.become(o.target)
		}
		s.askUser(o.doubt)
	case o.named:
		o.named = false
		s.askName(func() {
			pin.outcome = o
			s.settle()
		})
	case !o.changed:
	case Nameless(o.target):
		s.become(o.target)
		s.keepLogin()
	case !o.authenticated:
		s.arrive(o.target)
	default:
		known, ok := s.proxy.Upstream.Proven(o.target.User)
		if !ok || known == o.target.Password {
			s.proxy.Upstream.Prove(o.target.User, o.target.Password)
			s.selectDatabase(o.target)
			return
		}
		s.inquire(resp.AppendCommand(nil, "AUTH", o.target.User, known), func(reply []byte) {
			if resp.IsOK(reply) {
				o.target.Password = known
			} else {
				s.proxy.Upstream.Prove(o.target.User, o.target.Password)
			}
			s.selectDatabase(o.target)
		})
	}
}

// selectDatabase is the second half of settle. It finds out whether the user may SELECT.
func (s *Session) selectDatabase(target upstream.Identity) {
	if target.DB == 0 {
		s.arrive(target)
		return
	}
	s.inquire(resp.AppendCommand(nil, "SELECT", strconv.Itoa(target.DB)), func(reply []byte) {
		if resp.IsOK(reply) {
			s.arrive(target)
			return
		}
		s.become(target)
		s.keepLogin()
	})
}

// arrive ends an identity change. The lane is opened at once, so that clients behind this one can be judged on it.
func (s *Session) arrive(target upstream.Identity) {
	s.become(target)
	if s.pin.login {
		s.turnTo(s.pin.conn.At())
		s.onLane(ordinary)
	}
}

// inquire sends a command of the proxy itself on the session's pin. The client's commands wait for its reply.
func (s *Session) inquire(cmd []byte, then func(reply []byte)) {
	pin := s.pin
	s.wait = waitReply
	s.forward(ordinary, cmd, vital{s: s, Reply: &reply.Reply{Session: s, Muted: true, Done: func(reply []byte) {
		s.Resume()
		if s.pin == pin {
			then(reply)
		}
	}}}, 1)
}

// vital is the handler of an answer that the session needs.
type vital struct {
	*reply.Reply
	s *Session
}

// Lost implements reply.Handler. The client knows already that it is another user, or in another database, and the
// session never will.
func (v vital) Lost(reply.ID, int, bool) { v.s.CutOff() }

// askName asks for the name that a refused HELLO has left on the session's pin. then follows if the session goes on as
// before.
func (s *Session) askName(then func()) {
	s.inquire(command.GetName, func(reply []byte) {
		switch v, _, err := resp.Decode(reply); {
		case err == nil && !v.IsError():
			s.rename(string(v.Str), false)
		case isNoAuth(reply):
			s.pin.spent = true
		default: // the name may be long, or the user may not ask for it
			s.keepLogin()
		}
		if !s.out.Gone() {
			then()
		}
	})
}

func isNoAuth(reply []byte) bool { return bytes.HasPrefix(reply, []byte("-NOAUTH ")) }

// askUser asks for the user's name after a refused HELLO that may have logged in. The session follows, if the HELLO
// says how.
func (s *Session) askUser(c Change) {
	s.inquire(command.WhoAmI, func(reply []byte) {
		v, _, err := resp.Decode(reply)
		if err != nil || v.IsError() || string(v.Str) == cmp.Or(s.ident.User, "default") {
			s.checkLogin()
			return
		}
		id, known := c.loggedIn(string(v.Str), s.ident)
		if !known {
			s.checkLogin()
			return
		}
		s.pin.outcome = outcome{target: id, changed: true, authenticated: true, named: c.Name != nil}
		s.settle()
	})
}

// checkLogin keeps the session's pin if a refused HELLO may have logged in there. A client that is not logged in by
// then does not need it.
func (s *Session) checkLogin() {
	bare := s.pin.conn.Bare()
	if s.ident.Authenticated() && !bare {
		s.keepLogin()
		return
	}
	s.inquire(command.Hello, func(reply []byte) {
		switch {
		case isNoAuth(reply):
			s.pin.spent = true
		case bare && s.ident.Authenticated():
			s.CutOff() // the connection may be the new user's or none's, but not the old user's
		default:
			s.keepLogin()
		}
	})
}

// keepLogin keeps the session's pin for the rest of the session: no other session may have it, and no other connection
// can be made like it.
func (s *Session) keepLogin() {
	s.pin.keep = true
	if s.pin.conn.Bare() && !s.pin.dressed {
		s.pin.dress()
		return
	}
	if !s.pin.conn.Keep() {
		s.out.say(s.proxy.NoPinFree(upstream.ErrPins, s.Addr))
		s.CutOff()
	}
}

// dress gives a bare connection, on which the client has logged in, the protocol and the database of its session. If
// the user may not select it, no connection can be what the client expects.
func (p *pinned) dress() {
	s := p.s
	done := func(reply []byte) {
		if reply[0] == '-' {
			s.CutOff()
			return
		}
		p.dressed = true
		s.keepLogin()
	}
	s.inquire(resp.AppendCommand(nil, "HELLO", strconv.Itoa(s.ident.Proto)), func(reply []byte) {
		if reply[0] == '-' || s.ident.DB == 0 {
			done(reply)
			return
		}
		s.inquire(resp.AppendCommand(nil, "SELECT", strconv.Itoa(s.ident.DB)), done)
	})
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
