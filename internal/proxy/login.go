package proxy

import (
	"bytes"
	"errors"
	"net/netip"
	"strconv"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"lockproxy/internal/proxy/idchange"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// AUTH, HELLO and SELECT lead the session to another identity. If there is a lane of that identity, the command is sent on it. It changes
// nothing there, so Redis can judge it on a shared connection, and many clients that log in at once need no connections of their own. The session visits that lane until Redis has answered, and moves to it if Redis agrees. Otherwise
// Redis judges on a connection that is taken for it from a small pool (reidentify).

// visit sends an identity change of a session that has no pin on the lane of the identity to which it leads. Nothing is
// outstanding. It is refused if there could be no such lane. false: it has to be judged elsewhere.
func (s *Session) visit(name string, raw []byte) bool {
	c := idchange.Read(name, s.args)
	if s.visitFor(c, raw) {
		return true
	}
	return c.Shared(raw, s.args) != nil && !s.hasRoom(c) && s.answer(noLaneFree)
}

// visitFromPin is visit for a session that had to wait for its pin. The lane that leads on may be there now.
func (s *Session) visitFromPin(c idchange.Change, raw []byte) bool {
	if !s.pin.login || !s.visitFor(c, raw) {
		return false
	}
	s.wait, s.pin.fresh = waitNone, false
	s.releasePin()
	s.wait = waitReply
	return true
}

func (s *Session) visitFor(c idchange.Change, raw []byte) bool {
	cmd := c.Shared(raw, s.args)
	if cmd == nil {
		return false
	}
	target := c.Apply(s.ident)
	lane := s.env.upstream.Join(target, s.host.Driver())
	if lane == nil {
		return false
	}
	s.visited = lane
	s.wait = waitReply // what follows must travel under the identity that this leads to
	h := &replyHandler{s: s, muted: s.muted, done: func(reply []byte) { s.judged(c, target, reply) }}
	if c.Hello {
		h.replace = s.ownID
	}
	s.transmit(lane, cmd, s.slots.Add(lane, h, 1), 1)
	return true
}

// judged ends a visit with Redis's answer.
func (s *Session) judged(c idchange.Change, target upstream.Identity, reply []byte) {
	s.resume()
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
func (s *Session) noteDenial(c idchange.Change, reply []byte) {
	user, denied := c.Denied(reply)
	if !denied {
		return
	}
	total := s.env.stats.LoginsFailed.Add(1)
	s.env.failedLogins.Warn("login failed", zap.String("client", s.addr), zap.String("user", user[:min(len(user), maxLoggedUser)]), zap.Int64("total", total))
}

// maxLoggedUser is the number of bytes of a user's name that are logged: a client may send any name.
const maxLoggedUser = 64

// loginsLogged is the number of failed logins that are logged in a second, because guesses at passwords must not fill the log. The
// total in the log counts the others too.
const loginsLogged = 10

// limited is log with at most loginsLogged of the same entries in a second.
func limited(log *zap.Logger) *zap.Logger {
	return log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return zapcore.NewSamplerWithOptions(core, time.Second, loginsLogged, 0)
	}))
}

// endVisit leaves the lane that the session visits.
func (s *Session) endVisit() {
	if s.visited != nil {
		s.env.upstream.Leave(s.visited)
		s.visited = nil
	}
}

var helloID = []byte("$2\r\nid\r\n:")

// ownID puts the session's own number into a reply to HELLO, in place of the lane's. A refusal has none.
func (s *Session) ownID(reply []byte) []byte {
	i := bytes.Index(reply, helloID)
	if i < 0 {
		return reply
	}
	head, rest := reply[:i+len(helloID)], reply[i+len(helloID):]
	end := bytes.IndexByte(rest, '\r')
	return append(strconv.AppendUint(bytes.Clone(head), s.id, 10), rest[end:]...)
}

// noLaneFree is the reply when the session's identity cannot have a lane.
var noLaneFree = resp.AppendError(nil, resp.Overloaded, "no connection to share is free for this identity (max-lanes), nothing was sent")

// hasRoom reports whether the session can go on if Redis agrees to an identity change.
func (s *Session) hasRoom(c idchange.Change) bool {
	target := c.Apply(s.ident)
	if known, ok := s.env.upstream.Proven(target.User); c.Auth && ok {
		target.Password = known // the lane that it will share if that is still good
	}
	return s.env.upstream.RoomFor(target, s.host.Driver(), s.owner)
}

var errLogins = errors.New("no upstream connection is free for logins")

// noPinFree is the reply when there is no connection to Redis for a command.
func noPinFree(why error) []byte {
	setting := "max-pins"
	switch {
	case errors.Is(why, upstream.ErrPinShare):
		setting = "max-pins-per-address"
	case errors.Is(why, errLogins):
		setting = "max-logins"
	}
	return resp.AppendError(nil, resp.Overloaded, why.Error()+" ("+setting+"), nothing was sent")
}

// account is on whose account a client's connections to Redis go: its address, or what one subscriber has of IPv6 addresses.
func account(addr string) string {
	ap, err := netip.ParseAddrPort(addr)
	if err != nil {
		return addr // a unix socket
	}
	ip := ap.Addr().Unmap().WithZone("")
	if ip.Is4() {
		return ip.String()
	}
	prefix, _ := ip.Prefix(64) // an IPv6 address has more bits than that
	return prefix.String()
}
