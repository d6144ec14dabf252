package session

import (
	"bytes"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// kill goes on with Redis's judgement of CLIENT KILL. Redis's own clients are killed one by one, because Redis would apply the filter
// to the proxy's connections too.
func (q *Inquiry) kill(reply []byte) {
	f, ok := clients.ParseKill(q.Args)
	switch {
	case !clients.Killed(reply):
		q.Answer(reply)
	case !ok:
		q.Answer(syntaxError)
	case f.IDs != nil:
		q.killOthers(f, f.IDs)
	default:
		ask := resp.AppendCommand(nil, "CLIENT", "LIST")
		q.Ask(func(reply []byte) {
			text, _ := clients.Text(reply) // a user who may kill and not list, kills clients of the proxy and clients whose id is known
			q.Proxy.Upstream.Connections().Settle()
			l := q.Proxy.ParseListing(text)
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
func (q *Inquiry) killOthers(f clients.Filter, ids []uint64) {
	own := q.Proxy.Upstream.Connections()
	var commands [][]byte
	for _, id := range ids {
		if clients.Foreign(int64(id)) && !own.Own(id, "") {
			commands = append(commands, resp.AppendCommand(nil, clients.ByID(q.Args, id)...))
		}
	}
	if len(commands) == 0 {
		q.killOurs(f, 0)
		return
	}
	q.Ask(func(replies []byte) {
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
func (q *Inquiry) killOurs(f clients.Filter, killed int) {
	e, me := q.Proxy, false
	var conns [][]byte
	match := func(c *clients.Info) bool {
		if !f.Match(c, nil) {
			return false
		}
		if c.ID == q.Client {
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
			q.AnswerLast(f.Reply(killed + 1))
			return
		}
		q.Answer(f.Reply(killed))
	}
	if len(conns) == 0 {
		answer(nil)
		return
	}
	q.Ask(answer, conns...)
}
