package session

import (
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// list goes on with Redis's answer to CLIENT LIST.
func (q *Inquiry) list(reply []byte) {
	e := q.Proxy
	text, ok := clients.Text(reply)
	if !ok {
		q.Answer(reply)
		return
	}
	if len(q.Args) > 0 && command.Keyword(q.Args, 0) == "id" {
		q.listIDs(reply, text)
		return
	}
	only := clients.AnyType
	if len(q.Args) == 2 {
		only = clients.TypeNamed(q.Args[1])
	}
	e.Upstream.Connections().Settle()
	e.Listing.Lock()
	l := e.ParseListing(text)
	all := e.Connected()
	for i := range all {
		q.own(&all[i])
	}
	text = clients.AppendText(nil, reply, l.Text(all, only, e.Shape.Load(), e.Limits().Output))
	e.Listing.Unlock()
	q.Answer(text)
}

// own puts the command itself into the buffers of its sender, because Redis shows an asking client this way.
func (q *Inquiry) own(c *clients.Info) {
	if c.ID == q.Client {
		c.Query += int64(q.Size)
		c.Args = int64(len("client") + len("list"))
		for _, arg := range q.Args {
			c.Args += int64(len(arg))
		}
	}
}

// listIDs goes on with the answer to CLIENT LIST ID. Redis says more of the clients that have connections of their own there.
func (q *Inquiry) listIDs(reply, text []byte) {
	e := q.Proxy
	found := map[uint64]*clients.Info{}
	more := [][]byte{[]byte("CLIENT"), []byte("LIST"), []byte("ID")}
	for i, word := range q.Args[1:] {
		clients.Yield(i)
		id, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil || found[id] != nil {
			continue
		}
		l, ok := e.Clients.Get(id)
		if !ok {
			continue
		}
		if c, ok := l.Describe(); ok {
			q.own(&c)
			found[id] = &c
			if c.Conn != 0 {
				more = append(more, strconv.AppendUint(nil, c.Conn, 10))
			}
		}
	}
	answer := func(own clients.Listing) {
		e.Upstream.Connections().Settle()
		e.Listing.Lock()
		l := e.ParseListing(text)
		l.Add(own)
		find := func(id uint64) (*clients.Info, bool) { return found[id], found[id] != nil }
		text = clients.AppendText(nil, reply, l.TextOf(q.Args[1:], find, e.Shape.Load(), e.Limits().Output))
		e.Listing.Unlock()
		q.Answer(text)
	}
	if id := e.Upstream.Connections().Any(); len(found) > 0 && e.Shape.Load() == nil && id != 0 {
		more = append(more, strconv.AppendUint(nil, id, 10)) // to see what a line looks like
	}
	if len(more) == 3 {
		answer(clients.Listing{})
		return
	}
	q.Ask(func(reply []byte) {
		text, _ := clients.Text(reply)
		answer(e.ParseListing(text))
	}, resp.AppendCommand(nil, more...))
}
