package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// redirectsTo returns the client of the proxy to which the CLIENT TRACKING being routed redirects, and the index of its id among the
// arguments; nil: it names none.
func (s *Session) redirectsTo() (target *Session, at int) {
	at = redirection(s.args)
	if at == 0 {
		return nil, 0
	}
	id, err := strconv.ParseInt(string(s.args[at]), 10, 64)
	if err != nil || clients.Foreign(id) {
		return nil, 0
	}
	l, _ := s.proxy.Clients.Get(uint64(id))
	target, _ = l.(*Session)
	return target, at
}

// redirection is the index of the client's id among the arguments of CLIENT TRACKING; 0: there is none.
func redirection(args [][]byte) int {
	for i := 3; i+1 < len(args); i++ {
		switch command.Keyword(args, i) {
		case "prefix":
			i++ // which may be any word
		case "redirect":
			return i + 1
		}
	}
	return 0
}

// unnamed returns a CLIENT TRACKING or UNBLOCK in which Redis's number of one of the proxy's own connections is replaced, with s.args to match: Redis answers
// that there is no such client. Otherwise a client could have messages sent to a connection that others share, or end another client's wait.
func (s *Session) unnamed(raw []byte) []byte {
	at := 0
	switch command.Keyword(s.args, 1) {
	case "unblock":
		at = 2
	case "tracking":
		at = redirection(s.args)
	}
	if at == 0 || at >= len(s.args) {
		return raw
	}
	id, err := strconv.ParseInt(string(s.args[at]), 10, 64)
	if err != nil || id <= 0 || !s.proxy.Upstream.Connections().Own(uint64(id), "") {
		return raw
	}
	s.args[at] = strconv.AppendInt(nil, clients.UnusedID, 10)
	return resp.AppendCommand(nil, s.args...)
}

// trackTo sends a CLIENT TRACKING that redirects to a client of the proxy. Redis must know the client's own connection, so the client
// gets a pin if it has none. The session waits for that.
func (s *Session) trackTo(target *Session, at int, raw []byte) bool {
	if (s.pin.InTx || s.pin.Opening > 0) && !s.awaitQuiet() {
		return false
	}
	args, pin, muted := resp.Split(bytes.Clone(raw), nil), s.pin, s.muted
	s.wait = waitReply
	held := s.out.Slots.Hold()
	s.afterUnlock = append(s.afterUnlock, func() {
		target.provide(func(conn uint64) {
			defer s.host.Flush()
			s.mu.Lock()
			defer s.exit()
			s.Answered(held, 1) // the session still waits
			s.Resume()
			s.muted = muted
			switch {
			case s.over():
			case s.pin != pin:
				s.answer(shared.NoUpstream)
			default:
				var accepted func()
				if conn != 0 { // else Redis answers that there is no such client
					accepted = func() { s.redir = clients.Redirection{Client: target.ID, Conn: conn} }
					args[at] = strconv.AppendUint(nil, conn, 10)
				}
				s.markPin(resp.AppendCommand(nil, args...), &reply.Reply{Session: s, Muted: muted}, true, accepted)
			}
			s.advance()
		})
	})
	return true
}

// provide gives the session a connection of its own until the session's end, because another client names it. then is called once with
// the connection's id at Redis; 0: there is none. then requires no locks.
func (s *Session) provide(then func(conn uint64)) {
	defer s.host.Flush()
	s.mu.Lock()
	defer s.exit()
	s.wanted = append(s.wanted, then)
	switch {
	case s.over():
		s.provided(0)
	case s.pin != nil && !s.pin.login, s.out.Slots.Due() == 0:
		s.serveWanted()
	}
}

// serveWanted serves the sessions that want to name this session's connection, unless a reply is outstanding on its lane.
func (s *Session) serveWanted() {
	if len(s.wanted) == 0 || s.wait == waitGoodbye {
		return
	}
	if s.pin == nil {
		if s.wait != waitNone { // for a lock, for example: it can have no connection now
			s.provided(0)
			return
		}
		conn := s.proxy.Upstream.Acquire(upstream.Ask{ID: s.ident, At: s.home(), Owner: s.owner})
		if conn == nil {
			s.provided(0)
			return
		}
		s.setPin(conn, "client|tracking", false)
	}
	pin := s.pin
	switch {
	case pin.login && pin.fresh:
		return // its login is sent next, and the answer to it comes here again
	case pin.login && !pin.keep, pin.conn.ID() == 0 && (pin.mode != readsReplies || pin.asked || s.pinWaits() || pin.InTx):
		s.provided(0)
		return
	case pin.conn.ID() != 0:
		s.provided(pin.conn.ID())
	case pin.Opening > 0:
		return // a question would be queued in the client's transaction; the id is known when the MULTI is answered
	default:
		s.askNumber(false)
	}
	pin.keep = true
}

// unnumbered reports whether the pin's id at Redis is unknown, because the pin was connected for a client without credentials: Redis
// would tell it only now.
func (p *pinned) unnumbered() bool {
	return p.conn.ID() == 0 && p.conn.Connected() && !p.asked && p.s.ident.Authenticated()
}

// askNumber asks for the id of the session's pin at Redis. If the session waits for the answer, nothing is outstanding.
func (s *Session) askNumber(wait bool) {
	pin := s.pin
	pin.asked = true
	if wait {
		s.wait = waitReply
	}
	s.forward(command.Hello, &reply.Reply{Session: s, Muted: true, Whole: true, Done: func(reply []byte) {
		if v, _, err := resp.Decode(reply); err == nil && s.pin == pin {
			pin.conn.Greeted(v)
		}
		if wait {
			s.Resume()
		}
		s.serveWanted()
	}}, 1)
}

// provided tells the id to the callers of provide.
func (s *Session) provided(conn uint64) {
	for _, then := range s.wanted {
		s.afterUnlock = append(s.afterUnlock, func() { then(conn) })
	}
	s.wanted = nil
}
