package session

import (
	"bytes"
	"strconv"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/resp"
)

// inquiry is a CLIENT LIST, KILL or UNBLOCK on its way. Redis gets it first, or a harmless form of it, on the session's own
// connection: Redis judges the rights and the syntax. Then a goroutine does the proxy's part, because it looks at all clients, each
// of which has a lock of its own. The session waits meanwhile, and a slot is held for the reply.
type inquiry struct {
	s     *Session
	at    replies.ID // of the reply
	args  [][]byte   // behind the subcommand
	size  int        // of the command
	muted bool
	done  bool   // it has been answered
	after func() // called when it has been answered; requires no locks; nil: not called
}

// askAbout starts an inquiry. Nothing is outstanding.
func (s *Session) askAbout(raw []byte) bool {
	q := &inquiry{s: s, size: len(raw), muted: s.muted, args: resp.Split(bytes.Clone(raw), nil)[2:]}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.Queued++
	}
	s.wait = waitReply
	q.at = s.slots.Hold()
	s.gathered = q.size
	switch command.Keyword(s.args, 1) {
	case "list":
		q.ask(q.list, raw)
	case "kill":
		q.ask(q.kill, clients.Harmless(q.args))
	default:
		q.ask(q.unblock, raw)
	}
	return true
}

// ask sends commands to Redis, and has next run with all their replies, one after the other. Requires the session lock.
func (q *inquiry) ask(next func(replies []byte), commands ...[]byte) {
	to := &question{q: q, left: len(commands), next: next}
	for _, raw := range commands {
		q.s.forward(raw, to, 1)
	}
}

// askAgain is ask for the inquiry's goroutine.
func (q *inquiry) askAgain(next func(replies []byte), commands ...[]byte) {
	q.s.mu.Lock()
	defer q.s.exit()
	if q.s.gone() {
		q.finish(nil)
		return
	}
	q.ask(next, commands...)
}

// answer ends the inquiry with its reply. It is for the inquiry's goroutine.
func (q *inquiry) answer(reply []byte) {
	q.conclude(func() { q.finish(reply) })
}

func (q *inquiry) conclude(finish func()) {
	s := q.s
	defer s.host.Flush()
	s.mu.Lock()
	defer s.exit()
	finish()
	s.advance()
}

// finish returns the answer; nil: there is none. Requires the session lock.
func (q *inquiry) finish(reply []byte) {
	if q.done {
		return
	}
	q.done = true
	s := q.s
	if !q.muted && reply != nil {
		s.put(q.at, reply, false)
	}
	if q.after != nil {
		s.afterUnlock = append(s.afterUnlock, q.after)
	}
	s.gathered = 0
	s.resume()
	s.answered(q.at, 1)
}

// question is the handler of what Redis answers to an inquiry.
type question struct {
	q       *inquiry
	left    int
	replies []byte
	next    func(replies []byte)
}

// take is handler.
func (q *question) take(_ replies.ID, b []byte, n int, _ bool) int {
	q.replies = append(q.replies, b...)
	q.q.s.gathered += len(b)
	q.came(n)
	return n
}

// came counts replies. With the last one the inquiry goes on. Requires no locks.
func (q *question) came(n int) {
	if q.left -= n; q.left > 0 || q.q.done {
		return
	}
	s := q.q.s
	if s.gone() {
		q.q.finish(nil)
		return
	}
	s.afterUnlock = append(s.afterUnlock, func() {
		started := s.proxy.Inquiries.Start(func() {
			defer func() {
				if r := recover(); r != nil {
					s.proxy.Panicked(s.Addr, r)
					s.Hungup()
					q.q.answer(nil)
				}
			}()
			q.next(q.replies)
		})
		if !started { // the server has ended
			q.q.answer(nil)
		}
	})
}

// lost is handler. The inquiry ends.
func (q *question) lost(replies.ID, int, bool) {
	if q.q.s.gone() {
		q.q.finish(nil)
		return
	}
	q.q.finish(shared.NoUpstream)
}

var _ handler = (*question)(nil)

// list goes on with Redis's answer to CLIENT LIST.
func (q *inquiry) list(reply []byte) {
	e := q.s.proxy
	text, ok := clients.Text(reply)
	if !ok {
		q.answer(reply)
		return
	}
	if len(q.args) > 0 && command.Keyword(q.args, 0) == "id" {
		q.listIDs(reply, text)
		return
	}
	only := clients.AnyType
	if len(q.args) == 2 {
		only = clients.TypeNamed(q.args[1])
	}
	e.Upstream.Connections().Settle()
	e.Listing.Lock()
	l := e.ParseListing(text)
	all := e.Connected()
	for i := range all {
		q.own(&all[i])
	}
	text = clients.AppendText(nil, reply, l.Text(all, only, e.Shape.Load(), e.Settings.Limits.Output))
	e.Listing.Unlock()
	q.answer(text)
}

// own puts the command itself into the buffers of its sender, because Redis shows an asking client this way.
func (q *inquiry) own(c *clients.Info) {
	if c.ID == q.s.ID {
		c.Query += int64(q.size)
		c.Args = int64(len("client") + len("list"))
		for _, arg := range q.args {
			c.Args += int64(len(arg))
		}
	}
}

// listIDs goes on with the answer to CLIENT LIST ID. Redis says more of the clients that have connections of their own there.
func (q *inquiry) listIDs(reply, text []byte) {
	e := q.s.proxy
	found := map[uint64]*clients.Info{}
	more := [][]byte{[]byte("CLIENT"), []byte("LIST"), []byte("ID")}
	for i, word := range q.args[1:] {
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
		text = clients.AppendText(nil, reply, l.TextOf(q.args[1:], find, e.Shape.Load(), e.Settings.Limits.Output))
		e.Listing.Unlock()
		q.answer(text)
	}
	if id := e.Upstream.Connections().Any(); len(found) > 0 && e.Shape.Load() == nil && id != 0 {
		more = append(more, strconv.AppendUint(nil, id, 10)) // to see what a line looks like
	}
	if len(more) == 3 {
		answer(clients.Listing{})
		return
	}
	q.askAgain(func(reply []byte) {
		text, _ := clients.Text(reply)
		answer(e.ParseListing(text))
	}, resp.AppendCommand(nil, more...))
}
