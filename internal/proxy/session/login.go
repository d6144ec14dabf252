package session

import (
	"bytes"
	"strconv"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A demand is Redis's answer to the question whether it demands a login.
type demand uint8

const (
	unasked demand = iota
	none
	needed
	unanswered // it cannot be reached
)

// doubt notes whether the session must be admitted. While Redis demands a login, the limits for the commands of its
// clients are narrower.
func (s *Session) doubt() {
	s.doubted = !s.ident.Authenticated() && !s.proxy.Upstream.Admits()
	s.guard.Restrict(s.doubted && s.proxy.Restricts(s.ident))
}

// admit decides about a command of a client that has not logged in, when Redis is not known to serve such clients. It
// is refused if Redis, asked since the command came, demands a login. Redis itself answers the commands that log in.
func (s *Session) admit(r *request) command.Decision {
	if r.Policy == command.Identity && r.Row.Name != "select" || r.Row.Name == "quit" ||
		r.Row.Name == "reset" && len(r.Args) == 1 {
		return command.Undecided
	}
	if !s.awaitQuiet() {
		return command.Postponed
	}
	answer := s.demand
	s.demand = unasked
	switch {
	case answer == none:
		return command.Undecided
	case answer == needed && r.Row.Malformed(r.Args):
		return command.Decided(s.refuseForm(r))
	case answer == needed && r.Row.Name == "exec":
		return command.Decided(s.answer(r, reply.Aborted(noAuth)))
	case answer == needed:
		return command.Decided(s.answer(r, noAuth))
	case answer == unanswered:
		return command.Decided(s.notCarriedOut(r))
	case s.stranded():
		s.giveUp()
		return command.Postponed
	}
	s.wait = waitReply
	s.proxy.Upstream.AskAuth(func(needs bool, err error) { s.Do(func() { s.learn(needs, err) }) })
	return command.Postponed
}

// refuseForm has Redis refuse a command that it does not have, or not with these arguments: it looks at that before it
// demands a login. false: the session waits for a connection.
func (s *Session) refuseForm(r *request) bool {
	switch refusal, ok := s.takePin(r, "login", command.Identity, true); {
	case refusal != nil:
		return s.refuse(r, refusal)
	case !ok:
		s.demand = needed
		return false
	}
	pin := s.pin
	pin.fresh = false
	done := func(reply []byte) { pin.spent = pin.spent || !untouched(reply) }
	s.way.Send(r, r.Raw, &reply.Reply{Session: s, Muted: r.Muted, Done: done})
	return true
}

// learn takes Redis's answer to the question of admit.
func (s *Session) learn(needs bool, err error) {
	s.Resume()
	switch {
	case err != nil:
		s.demand = unanswered
	case needs:
		s.demand = needed
		s.reached()
	default:
		s.demand = none
	}
}

// reidentify has Redis judge AUTH, HELLO or SELECT, which lead the session to another identity if Redis agrees.
//
// A login is judged on a connection of a small pool, alone on it. Another command is sent on the lane of the identity
// to which it leads, if there is one, and changes nothing there. If the session could have no lane behind it, it is
// refused.
func (s *Session) reidentify(r *request) bool {
	c := readChange(r.Row.Name, r.Args)
	switch {
	case s.visit(r, c):
		return true
	case s.pin != nil:
	case c.shared(r.Raw, r.Args) != nil && !s.hasPlace(c):
		return s.refuse(r, s.proxy.Refuse(noLaneFree, "lanes", s.Addr))
	default:
		if _, ok := s.takePin(r, r.Row.Name, r.Policy, true); !ok {
			return false
		}
	}
	return s.reidentifyPin(r, c)
}

// visit sends an identity change on the lane of the identity to which it leads. The session visits that lane until
// Redis has answered, and moves to it if Redis agrees. false: there is no such lane, or the session may not leave its
// own connection. A pin that the session has waited for goes back: the lane has come into being meanwhile.
func (s *Session) visit(r *request, c identityChange) bool {
	pin := s.pin
	if s.out.Slots.Due() > 0 || pin != nil && !(pin.login && pin.fresh && pin.borrowed == 0) {
		return false
	}
	cmd := c.shared(r.Raw, r.Args)
	if c.Auth || s.doubted || cmd == nil {
		return false
	}
	lane := s.proxy.Upstream.Lanes.Join(c.apply(s.ident), s.way.Home(), s.host.Driver())
	if lane == nil {
		return false
	}
	if pin != nil {
		pin.fresh = false
		s.releasePin()
	}
	s.visited = lane
	h := s.judgedBy(s.judgedOnLane, r, c)
	s.transmit(lane, cmd, s.out.Slots.Add(lane, h, 1), 1)
	return true
}

// judgedOnLane ends a visit with Redis's answer.
func (s *Session) judgedOnLane(c identityChange, reply []byte) {
	if reply[0] == '-' {
		return
	}
	lane := s.visited
	s.visited = nil
	s.leaveLane()
	s.lane, s.role = lane, upstream.Reads
	s.become(c.apply(s.ident))
	if c.Name != nil {
		s.rename(*c.Name, false)
	}
}

// reidentifyPin sends an identity change on the session's pin. If Redis agrees, the pin and the session belong to
// another identity from then on.
//
// A login waits until all earlier commands are answered: newer servers do not answer a refused AUTH behind answers that
// are still to be written (see pins.Pin.AnswersRefusals). The next answer would count as that to the AUTH. In a
// transaction, answers are always still to be written, so there a login is refused.
func (s *Session) reidentifyPin(r *request, c identityChange) bool {
	pin := s.pin
	if (c.Auth || pin.tx.mayBeOpen()) && !s.awaitQuiet() {
		return false
	}
	pin.fresh = false
	switch {
	case pin.tx.inTx && c.Auth && !pin.conn.AnswersRefusals():
		return s.poison(r, command.NotInTx)
	case pin.tx.inTx:
		pin.tx.queue(c)
		s.way.Send(r, r.Raw, reply.Passing(r.Muted))
		return true
	}
	pin.tx.count()
	s.way.Send(r, r.Raw, s.judgedBy(s.judgedOnPin, r, c))
	return true
}

// judgedOnPin notes the outcome of an identity change. If the proxy cannot tell who is logged in now, the client gets
// the reply, and its connection closes.
func (s *Session) judgedOnPin(c identityChange, reply []byte) {
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

// judgedBy returns the handler of Redis's answer to an identity change, which judged takes. The session waits for it:
// the next commands must travel under the new identity.
func (s *Session) judgedBy(judged func(c identityChange, reply []byte), r *request, c identityChange) *reply.Reply {
	h := &reply.Reply{Session: s, Muted: r.Muted}
	h.Done = func(reply []byte) {
		s.Resume()
		judged(c, reply)
	}
	h.Missed = s.partIfVital(r)
	if c.Hello {
		h.Replace = s.ownID
	}
	s.wait = waitReply
	return h
}

// noteDenial counts and logs a login that Redis has refused.
func (s *Session) noteDenial(c identityChange, reply []byte) {
	user, denied := c.denied(reply)
	if !denied {
		return
	}
	total := s.proxy.Counters.LoginsFailed.Add(1)
	s.proxy.Entries.Write(logging.Audit, "login failed", "", zap.String("client", s.Addr),
		zap.String("user", loggedUser(user)), zap.Int64("total", total))
}

// loggedUser is the part of a user's name that is logged: a client may send any name.
func loggedUser(user string) string { return user[:min(len(user), 64)] }

var helloID = []byte("$2\r\nid\r\n:")

// ownID puts the session's own number into a reply to HELLO, in place of the lane's. A refusal has none.
func (s *Session) ownID(reply []byte) []byte {
	reply = s.way.Mask("hello", reply)
	i := bytes.Index(reply, helloID)
	if i < 0 {
		return reply
	}
	head, rest := reply[:i+len(helloID)], reply[i+len(helloID):]
	end := bytes.IndexByte(rest, '\r')
	return append(strconv.AppendUint(bytes.Clone(head), s.ID, 10), rest[end:]...)
}

// hasPlace reports whether the session can go on if Redis agrees to an identity change.
func (s *Session) hasPlace(c identityChange) bool {
	return s.proxy.Upstream.Lanes.HasPlace(c.apply(s.ident), s.way.Home(), s.host.Driver(), s.owner)
}
