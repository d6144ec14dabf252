package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

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

// trackTo sends a CLIENT TRACKING that redirects to a client of the proxy, whose id is argument at. Redis gets the
// number of that client's own connection, or one of no client, so that Redis refuses. The session waits until the
// number is known.
func (s *Session) trackTo(r *request, at int) bool {
	if s.pin.tx.mayBeOpen() && !s.awaitQuiet() {
		return false
	}
	r.Keep()
	args, pin := resp.Split(bytes.Clone(r.Raw), nil), s.pin
	id, _ := strconv.ParseUint(string(args[at]), 10, 64) // 0, which is no client's, for a negative number
	s.wait = waitReply
	held := s.out.Slots.Hold()
	numbered := func(conn uint64) {
		defer s.host.Flush()
		s.mu.Lock()
		defer s.exit()
		s.Answered(held, 1) // the session still waits
		s.Resume()
		switch {
		case s.over():
		case s.pin != pin:
			s.notCarriedOut(r)
		case conn == 0:
			args[at] = strconv.AppendUint(nil, clients.UnusedID, 10)
			s.markPin(r, resp.AppendCommand(nil, args...), &reply.Reply{Session: s, Muted: r.Muted}, true, nil)
		default:
			args[at] = strconv.AppendUint(nil, conn, 10)
			s.markPin(r, resp.AppendCommand(nil, args...), &reply.Reply{Session: s, Muted: r.Muted}, true, func() {
				s.redir = clients.Redirection{Client: id, Conn: conn}
			})
		}
		s.advance()
	}
	s.afterUnlock = append(s.afterUnlock, func() {
		l, _ := s.proxy.Clients.Get(id)
		if target, ok := l.(*Session); ok {
			target.provide(s.owner, numbered)
		} else {
			numbered(0)
		}
	})
	return true
}

// provide gives the session a connection of its own until the session's end, because another client names it. The
// connection counts for that client's address, owner. then is called once with the connection's number at Redis; 0:
// there is none, because the session waits for something now. then requires no locks.
func (s *Session) provide(owner string, then func(conn uint64)) {
	defer s.host.Flush()
	s.mu.Lock()
	defer s.exit()
	if s.pin == nil && s.ready() && s.out.Slots.Due() == 0 {
		if conn := s.proxy.Upstream.Pins.Acquire(upstream.Ask{ID: s.ident, At: s.way.Home(), Owner: owner}); conn != nil {
			s.setPin(conn, "client|tracking", false)
		}
	}
	pin := s.pin
	switch {
	case s.over() || pin == nil || pin.login:
	case pin.conn.ID() != 0:
		pin.keep = true
		s.afterUnlock = append(s.afterUnlock, func() { then(pin.conn.ID()) })
		return
	case pin.mode == readsReplies && !s.pinWaits() && !pin.tx.mayBeOpen():
		pin.keep = true
		s.askNumber(then)
		return
	}
	s.afterUnlock = append(s.afterUnlock, func() { then(0) })
}

// askNumber asks for the number of the session's pin at Redis, and then has then called, which requires no locks.
func (s *Session) askNumber(then func(conn uint64)) {
	s.forward(ordinaryRow, command.Hello, &numbering{pin: s.pin, then: then}, 1)
}

// numbering is the handler of the answer to a HELLO that asks for the number of a pin.
type numbering struct {
	pin   *pinned
	hello []byte
	then  func(conn uint64)
}

// Take implements reply.Handler.
func (n *numbering) Take(_ reply.ID, b []byte, whole int, more bool) int {
	if n.hello = append(n.hello, b...); more {
		return whole
	}
	if v, _, err := resp.Decode(n.hello); err == nil && n.pin.s.pin == n.pin {
		n.pin.conn.Greeted(v)
	}
	n.tell(n.pin.conn.ID())
	return whole
}

// Lost implements reply.Handler.
func (n *numbering) Lost(reply.ID, int, bool) { n.tell(0) }

func (n *numbering) tell(conn uint64) {
	n.pin.s.afterUnlock = append(n.pin.s.afterUnlock, func() { n.then(conn) })
}

var _ reply.Handler = (*numbering)(nil)

// number is the connection as other clients name it to Redis.
func (p *pinned) number() clients.Conn { return clients.Conn{At: p.conn.At(), ID: p.conn.ID()} }
