package proxy

import (
	"bytes"
	"strconv"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/resp"
)

// inquiry is a CLIENT LIST, KILL or UNBLOCK on its way. Redis gets it first, or a harmless form of it, on the session's own
// connection: Redis judges the rights and the syntax. Then a goroutine does the proxy's part, because it looks at all clients, each
// of which has a lock of its own. The session waits meanwhile, and counts the inquiry as an outstanding reply.
type inquiry struct {
	s     *Session
	args  [][]byte // behind the subcommand
	size  int      // of the command
	muted bool
	done  bool   // it has been answered; session locked
	after func() // runs, without locks, when it has been; nil: nothing
}

// askAbout starts an inquiry. Nothing is outstanding.
func (s *Session) askAbout(raw []byte) bool {
	q := &inquiry{s: s, size: len(raw), muted: s.muted, args: resp.Split(bytes.Clone(raw), nil)[2:]}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.queued++
	}
	s.wait = forReply
	s.pending++
	s.gathered = q.size
	switch argument(s.args, 1) {
	case "list":
		q.ask(q.list, raw)
	case "kill":
		q.ask(q.kill, clients.Harmless(q.args))
	default:
		q.ask(q.unblock, raw)
	}
	return true
}

// ask sends commands to Redis, and has next run with all their replies, one after the other. Session locked.
func (q *inquiry) ask(next func(replies []byte), commands ...[]byte) {
	to := &question{q: q, left: len(commands), next: next}
	for _, raw := range commands {
		q.s.forward(raw, to, 1)
	}
}

// askAgain is ask for the inquiry's goroutine.
func (q *inquiry) askAgain(next func(replies []byte), commands ...[]byte) {
	q.s.mu.Lock()
	defer q.s.leave()
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
	defer s.leave()
	finish()
	s.advance()
}

// finish is answer with the session locked; nil: there is none.
func (q *inquiry) finish(reply []byte) {
	if q.done {
		return
	}
	q.done = true
	s := q.s
	if !s.gone() && !q.muted && reply != nil {
		s.emit(reply)
	}
	if q.after != nil {
		s.later = append(s.later, q.after)
	}
	s.gathered = 0
	s.resume()
	s.answered(1)
}

// question is the receiver of what Redis answers to an inquiry.
type question struct {
	q       *inquiry
	left    int
	replies []byte
	next    func(replies []byte)
}

func (q *question) Replies(b []byte, n int, more bool) {
	s := q.q.s
	s.mu.Lock()
	defer s.leave()
	q.gather(b)
	q.came(n)
	s.answered(n)
	s.advance()
}

func (q *question) take(b []byte, more bool) {
	q.gather(b)
	if !more {
		q.came(1)
	}
}

func (q *question) gather(b []byte) {
	q.replies = append(q.replies, b...)
	q.q.s.gathered += len(b)
}

// came counts replies. With the last one the inquiry goes on, without locks.
func (q *question) came(n int) {
	if q.left -= n; q.left > 0 || q.q.done {
		return
	}
	s := q.q.s
	if s.gone() {
		q.q.finish(nil)
		return
	}
	s.later = append(s.later, func() {
		started := s.env.inquiries.start(func() {
			defer func() {
				if r := recover(); r != nil {
					s.env.panicked(s.addr, r)
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

func (q *question) Lost(n int, sent bool) {
	s := q.q.s
	s.mu.Lock()
	defer s.leave()
	s.lost(n, sent, q)
	s.advance()
}

func (q *question) refused(n int) {
	q.q.finish(noUpstream)
	q.q.s.answered(n)
}

func (q *question) Keeps() bool { return q.q.s.Keeps() }

func (q *question) Flush() { q.q.s.host.Flush() }

var _ receiver = (*question)(nil)

// parse reads a listing of Redis's, and notes the shape of its lines.
func (e *env) parse(text []byte) clients.Listing {
	l := clients.ParseListing(text, e.upstream.Connections().Own)
	if l.Shape != nil {
		e.shape.Store(l.Shape)
	}
	return l
}

// list goes on with Redis's answer to CLIENT LIST.
func (q *inquiry) list(reply []byte) {
	e := q.s.env
	text, ok := clients.Text(reply)
	if !ok {
		q.answer(reply)
		return
	}
	if len(q.args) > 0 && argument(q.args, 0) == "id" {
		q.listIDs(reply, text)
		return
	}
	only := clients.AnyType
	if len(q.args) == 2 {
		only = clients.TypeNamed(q.args[1])
	}
	e.upstream.Connections().Settle()
	e.listing.Lock()
	l := e.parse(text)
	all := e.connected()
	for i := range all {
		q.own(&all[i])
	}
	text = clients.AppendText(nil, reply, l.Text(all, only, e.shape.Load(), e.opts.Limits.Output))
	e.listing.Unlock()
	q.answer(text)
}

// own puts the command itself into the buffers of its sender, because Redis shows an asking client this way.
func (q *inquiry) own(c *clients.Info) {
	if c.ID == q.s.id {
		c.Query += int64(q.size)
		c.Args = int64(len("client") + len("list"))
		for _, arg := range q.args {
			c.Args += int64(len(arg))
		}
	}
}

// listIDs goes on with the answer to CLIENT LIST ID. Redis says more of the clients that have connections of their own there.
func (q *inquiry) listIDs(reply, text []byte) {
	e := q.s.env
	found := map[uint64]*clients.Info{}
	more := [][]byte{[]byte("CLIENT"), []byte("LIST"), []byte("ID")}
	for i, word := range q.args[1:] {
		clients.Yield(i)
		id, err := strconv.ParseUint(string(word), 10, 64)
		if err != nil || found[id] != nil {
			continue
		}
		l, ok := e.clients.Get(id)
		if !ok {
			continue
		}
		if c, ok := l.describe(); ok {
			q.own(&c)
			found[id] = &c
			if c.Conn != 0 {
				more = append(more, strconv.AppendUint(nil, c.Conn, 10))
			}
		}
	}
	answer := func(own clients.Listing) {
		e.upstream.Connections().Settle()
		e.listing.Lock()
		l := e.parse(text)
		l.Add(own)
		find := func(id uint64) (*clients.Info, bool) { return found[id], found[id] != nil }
		text = clients.AppendText(nil, reply, l.TextOf(q.args[1:], find, e.shape.Load(), e.opts.Limits.Output))
		e.listing.Unlock()
		q.answer(text)
	}
	if id := e.upstream.Connections().Any(); len(found) > 0 && e.shape.Load() == nil && id != 0 {
		more = append(more, strconv.AppendUint(nil, id, 10)) // to see what a line looks like
	}
	if len(more) == 3 {
		answer(clients.Listing{})
		return
	}
	q.askAgain(func(reply []byte) {
		text, _ := clients.Text(reply)
		answer(e.parse(text))
	}, resp.AppendCommand(nil, more...))
}

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
			q.s.env.upstream.Connections().Settle()
			l := q.s.env.parse(text)
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
	own := q.s.env.upstream.Connections()
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
	e, me := q.s.env, false
	var conns [][]byte
	match := func(c *clients.Info) bool {
		if !f.Match(c, nil) {
			return false
		}
		if c.ID == q.s.id {
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
			if l, ok := e.clients.Get(id); ok {
				l.killIf(match)
			}
		}
	} else {
		for i, l := range e.clients.All() {
			clients.Yield(i)
			l.killIf(match)
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
		s.goodbye(reply)
	}
	q.finish(nil)
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
	l, _ := q.s.env.clients.Get(uint64(id))
	target, ok := l.(*Session)
	if !ok {
		q.answer(reply)
		return
	}
	withError := argument(q.args, 1) == "error"
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
	defer s.leave()
	switch {
	case s.gone():
	case s.wait == forLock:
		for _, e := range s.engines {
			if e.Unblock((*lockSession)(s), withError) {
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
	defer s.leave()
	if p.borrowed--; s.pin == p && s.pending == 0 {
		s.releasePin()
	}
}
