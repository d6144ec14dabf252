package session

import (
	"bytes"
	"strconv"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/resp"
)

// kill goes on with Redis's judgement of CLIENT KILL. Redis's own clients are killed one by one, because Redis would apply the filter
// to the proxy's connections too.
func (q *inquiry) kill(reply []byte) {
	f, ok := clients.ParseKill(q.args)
	switch {
	case !clients.Killed(reply):
		q.answer(reply)
	case !ok:
		q.answer(syntaxError)
	case f.IDs != nil:
		q.killOthers(f, f.IDs)
	default:
		ask := resp.AppendCommand(nil, "CLIENT", "LIST")
		q.askAgain(func(reply []byte) {
			text, _ := clients.Text(reply) // who may kill and not list, kills clients of the proxy and those whose id is known
			q.s.proxy.Upstream.Connections().Settle()
			l := q.s.proxy.ParseListing(text)
			var ids []uint64
			for _, line := range l.Others {
				if f.MatchLine(line) {
					ids = append(ids, line.ID())
				}
			}
			q.killOthers(f, ids)
		}, ask)
	}
}

var syntaxError = resp.AppendError(nil, resp.Err, "syntax error")

// killOthers has Redis kill those of its clients that match and are not this proxy's connections.
func (q *inquiry) killOthers(f clients.Filter, ids []uint64) {
	own := q.s.proxy.Upstream.Connections()
	var commands [][]byte
	for _, id := range ids {
		if clients.Foreign(int64(id)) && !own.Own(id, "") {
			commands = append(commands, resp.AppendCommand(nil, clients.ByID(q.args, id)...))
		}
	}
	if len(commands) == 0 {
		q.killOurs(f, 0)
		return
	}
	q.askAgain(func(replies []byte) {
		killed := 0
		for line := range bytes.Lines(replies) {
			if bytes.Equal(line, []byte(":1\r\n")) {
				killed++
			}
		}
		q.killOurs(f, killed)
	}, commands...)
}

// killOurs kills the clients of the proxy that match. Redis ends their pins before the answer, as it does with its own clients: after
// the answer a killed client must take nothing, such as an element of a list.
func (q *inquiry) killOurs(f clients.Filter, killed int) {
	e, me := q.s.proxy, false
	var conns [][]byte
	match := func(c *clients.Info) bool {
		if !f.Match(c, nil) {
			return false
		}
		if c.ID == q.s.ID {
			me = !f.SkipMe
			return false
		}
		if killed++; c.Conn != 0 {
			conns = append(conns, resp.AppendCommand(nil, "CLIENT", "KILL", "ID", strconv.FormatUint(c.Conn, 10)))
		}
		return true
	}
	if f.IDs != nil {
		for _, id := range f.IDs {
			if l, ok := e.Clients.Get(id); ok {
				l.KillIf(match)
			}
		}
	} else {
		for i, l := range e.Clients.All() {
			clients.Yield(i)
			l.KillIf(match)
		}
	}
	answer := func([]byte) {
		if me {
			q.conclude(func() { q.finishLast(f.Reply(killed + 1)) })
			return
		}
		q.answer(f.Reply(killed))
	}
	if len(conns) == 0 {
		answer(nil)
		return
	}
	q.askAgain(answer, conns...)
}

// finishLast is finish for a client that has killed itself: the reply is the last it gets.
func (q *inquiry) finishLast(reply []byte) {
	if q.muted {
		reply = reply[:0]
	}
	if s := q.s; !s.gone() {
		s.goodbye(nil)
	}
	q.finish(reply)
}

// unblock goes on with Redis's answer to CLIENT UNBLOCK, which does not know the clients of the proxy.
func (q *inquiry) unblock(reply []byte) {
	if reply[0] != ':' {
		q.answer(reply)
		return
	}
	id, err := strconv.ParseInt(string(q.args[0]), 10, 64)
	if err != nil || clients.Foreign(id) {
		q.answer(reply)
		return
	}
	l, _ := q.s.proxy.Clients.Get(uint64(id))
	target, ok := l.(*Session)
	if !ok {
		q.answer(reply)
		return
	}
	withError := command.Keyword(q.args, 1) == "error"
	unblocked, pin := target.unblock(withError)
	switch {
	case unblocked:
		q.answer(one)
	case pin == nil:
		q.answer(reply)
	default:
		words := []string{"CLIENT", "UNBLOCK", strconv.FormatUint(pin.conn.ID(), 10), "TIMEOUT"}
		if withError {
			words[3] = "ERROR"
		}
		q.after = func() { target.unborrow(pin) }
		q.askAgain(q.answer, resp.AppendCommand(nil, words...))
	}
}

var one = []byte(":1\r\n")

// unblock ends the wait of the session for a lock. If it has a connection at Redis on which it may be waiting, that is
// returned, and the session keeps it until unborrow.
func (s *Session) unblock(withError bool) (done bool, waits *pinned) {
	s.mu.Lock()
	defer s.exit()
	switch {
	case s.gone():
	case s.wait == waitLock:
		for _, e := range s.engines {
			if e.Unblock(s.ID, withError) {
				return true, nil
			}
		}
	case s.pin != nil && s.pin.conn.ID() != 0:
		s.pin.borrowed++
		return false, s.pin
	}
	return false, nil
}

func (s *Session) unborrow(p *pinned) {
	s.mu.Lock()
	defer s.exit()
	if p.borrowed--; s.pin == p && s.slots.Due() == 0 {
		s.releasePin()
	}
}
