package session

import (
	"bytes"
	"strconv"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// AUTH, HELLO and SELECT lead the session to another identity. If there is a lane of that identity, the command is sent
// on it. It changes nothing there, so Redis can judge it on a shared connection, and many clients that log in at once
// need no connections of their own. The session visits that lane until Redis has answered, and moves to it if Redis
// agrees. Without such a lane, Redis judges the command on a connection from a small pool (reidentify), and there it
// judges all logins if it does not answer each one that it refuses.

// visit sends an identity change of a session that has no pin on the lane of the identity to which it leads. Nothing is
// outstanding. It is refused if no such lane is possible. false: the command must be judged on a pin.
func (s *Session) visit(r *request) bool {
	c := ReadChange(r.row.Name, r.args)
	if s.visitFor(r, c) {
		return true
	}
	if c.shared(r.raw, r.args) == nil || s.hasPlace(c) {
		return false
	}
	words := s.proxy.Refuse(shared.NoLaneFree, "max-lanes", s.Addr)
	s.refused.behind(r.row.Name, words, r.muted)
	return r.answerWith(words)
}

// visitFromPin is visit for a session that had to wait for its pin. The lane may exist now.
func (s *Session) visitFromPin(r *request, c Change) bool {
	if !s.pin.login || !s.visitFor(r, c) {
		return false
	}
	s.wait, s.pin.fresh = waitNone, false
	s.releasePin()
	s.wait = waitReply
	return true
}

func (s *Session) visitFor(r *request, c Change) bool {
	cmd, name := c.shared(r.raw, r.args), r.row.Name
	if cmd == nil {
		return false
	}
	target := c.apply(s.ident)
	lane := s.proxy.Upstream.Join(target, s.home(), s.host.Driver())
	if lane == nil {
		return false
	}
	if c.Auth && !lane.AnswersRefusals() {
		s.proxy.Upstream.Leave(lane)
		return false
	}
	s.visited = lane
	s.wait = waitReply // what follows must travel under the identity that this leads to
	h := &reply.Reply{Session: s, Muted: r.muted, Done: func(reply []byte) { s.judged(c, target, reply) }}
	if c.Hello {
		h.Replace = s.ownID
	}
	h.Missed = func() { s.refused.behind(name, h.Session.Refusal(), h.Muted) }
	s.transmit(lane, cmd, s.out.Slots.Add(lane, h, 1), 1)
	return true
}

// judged ends a visit with Redis's answer.
func (s *Session) judged(c Change, target upstream.Identity, reply []byte) {
	s.Resume()
	s.noteDenial(c, reply)
	if reply[0] == '-' {
		s.endVisit()
		return
	}
	lane := s.visited
	s.visited = nil
	s.leaveLane()
	s.lane, s.role = lane, upstream.Reads
	s.become(target)
	if c.Name != nil {
		s.rename(*c.Name, false)
	}
}

// noteDenial counts and logs a login that Redis has refused.
func (s *Session) noteDenial(c Change, reply []byte) {
	user, denied := c.denied(reply)
	if !denied {
		return
	}
	total := s.proxy.Counters.LoginsFailed.Add(1)
	s.proxy.Entries.Write(logging.Audit, "login failed", "", zap.String("client", s.Addr),
		zap.String("user", user[:min(len(user), maxLoggedUser)]), zap.Int64("total", total))
}

// maxLoggedUser is the number of bytes of a user's name that are logged: a client may send any name.
const maxLoggedUser = 64

var helloID = []byte("$2\r\nid\r\n:")

// ownID puts the session's own number into a reply to HELLO, in place of the lane's. A refusal has none.
func (s *Session) ownID(reply []byte) []byte {
	if s.clustered() {
		reply = scatter.Greeting(reply)
	}
	i := bytes.Index(reply, helloID)
	if i < 0 {
		return reply
	}
	head, rest := reply[:i+len(helloID)], reply[i+len(helloID):]
	end := bytes.IndexByte(rest, '\r')
	return append(strconv.AppendUint(bytes.Clone(head), s.ID, 10), rest[end:]...)
}

// hasPlace reports whether the session can go on if Redis agrees to an identity change.
func (s *Session) hasPlace(c Change) bool {
	target := c.apply(s.ident)
	if known, ok := s.proxy.Upstream.Proven(target.User); c.Auth && ok {
		target.Password = known // the lane that it will share if the known password is still good
	}
	return s.proxy.Upstream.HasPlace(target, s.home(), s.host.Driver(), s.owner)
}

// A client without credentials has the rights that Redis gives to a new connection at the moment of the client's
// arrival or of its RESET, as on a direct connection. Later demands of Redis on new connections do not change them.

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
	if s.wait != waitDoor || s.out.Gone() {
		return
	}
	s.wait = waitNone
	if s.era != era { // after a RESET: the lane belongs to clients that came before Redis asked for credentials
		s.era = era
		s.leaveLane()
	}
	s.guard.Restrict(s.proxy.Restricts(s.ident))
	if s.out.Slots.Due() == 0 {
		s.releasePin()
	}
	s.advance()
}
