package session

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// This file answers CLIENT LIST, KILL and UNBLOCK, which concern other clients of the proxy. Redis gets a harmless form
// of the command first, on the session's own connection: Redis judges the rights and the syntax. Then a goroutine does
// the work, because it looks at many clients, each of which has a lock of its own.

// inquiry is such a command on its way. The session waits meanwhile, and a slot is held for the reply.
type inquiry struct {
	s     *Session
	words [][]byte // of the command
	args  [][]byte // those behind the subcommand
	size  int      // of the command, in bytes
	at    reply.ID // of the reply
	muted bool
	done  bool   // it has been answered
	after func() // called when it has been answered; requires no locks; nil: not called
}

// askAbout starts an inquiry. Nothing is outstanding.
func (s *Session) askAbout(r *request) bool {
	words := resp.Split(bytes.Clone(r.Raw), nil)
	q := &inquiry{s: s, words: words, args: words[2:], size: len(r.Raw), muted: r.Muted}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.tx.count()
	}
	s.wait = waitReply
	q.at = s.out.Slots.Hold()
	s.gathered = len(r.Raw)
	to := &question{q: q, left: 1}
	var raw []byte
	switch command.Keyword(r.Args, 1) {
	case "list":
		raw, to.next = q.harmlessList(r.Raw), q.list
	case "kill":
		raw, to.next = clients.Harmless(q.args), q.kill
	default:
		raw, to.next = q.harmlessUnblock(r.Raw), q.unblock
	}
	s.way.Send(r, raw, to)
	return true
}

// harmlessList is a CLIENT LIST that Redis judges like the client's, and answers with a line of its own version if
// possible. The line shows the fields that a client has.
func (q *inquiry) harmlessList(raw []byte) []byte {
	any := strconv.FormatUint(q.s.proxy.Upstream.Connections().Any(), 10)
	switch {
	case len(q.args) == 0:
		return resp.AppendCommand(nil, "CLIENT", "LIST", "ID", any)
	case len(q.args) > 1 && command.Keyword(q.args, 0) == "id":
		return resp.AppendCommand(nil, append(q.words, []byte(any))...)
	}
	return raw
}

// list goes on with Redis's judgement of CLIENT LIST.
func (q *inquiry) list(judgement []byte) {
	text, ok := clients.Text(judgement)
	if !ok {
		q.answer(judgement)
		return
	}
	f, ok := clients.ParseList(q.args)
	if !ok {
		q.answer(syntaxError)
		return
	}
	p := q.s.proxy
	p.Turns.Take() // so that many at once cost the memory of few
	defer p.Turns.Leave()
	shape, limit := clients.ShapeOf(text), p.Limits().Output
	var lines []byte
	for l := range p.Clients.Each(f.IDs) {
		c, ok := l.Describe()
		if !ok || !f.Match(&c) || f.SkipMe && c.ID == q.s.ID {
			continue
		}
		if len(lines) > limit {
			break
		}
		q.own(&c)
		lines = append(c.Append(lines, shape, nil), '\n')
	}
	q.answer(clients.AppendText(nil, judgement, lines))
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

// kill goes on with Redis's judgement of CLIENT KILL. Redis ends the pins of the clients before the answer: after the
// answer a killed client must take nothing, such as an element of a list.
func (q *inquiry) kill(judgement []byte) {
	f, ok := clients.ParseKill(q.args)
	switch {
	case !clients.Killed(judgement):
		q.answer(judgement)
		return
	case !ok:
		q.answer(syntaxError)
		return
	}
	killed, me := 0, false
	var pins []clients.Conn
	match := func(c *clients.Info) bool {
		if !f.Match(c) {
			return false
		}
		if c.ID == q.s.ID {
			me = !f.SkipMe
			return false
		}
		if killed++; c.Conn.ID != 0 {
			pins = append(pins, c.Conn)
		}
		return true
	}
	for l := range q.s.proxy.Clients.Each(f.IDs) {
		l.KillIf(match)
	}
	answer := func([]byte) {
		if me {
			q.answerLast(f.Reply(killed + 1))
			return
		}
		q.answer(f.Reply(killed))
	}
	if len(pins) == 0 {
		answer(nil)
		return
	}
	q.ask(answer, pins, func(id string) []byte { return resp.AppendCommand(nil, "CLIENT", "KILL", "ID", id) })
}

var syntaxError = resp.AppendError(nil, resp.Err, "syntax error")

// harmlessUnblock is a CLIENT UNBLOCK of no client, which Redis judges like the client's.
func (q *inquiry) harmlessUnblock(raw []byte) []byte {
	if len(q.args) == 0 || !clients.IsNumber(q.args[0]) {
		return raw
	}
	words := slices.Clone(q.words)
	words[2] = strconv.AppendUint(nil, clients.UnusedID, 10)
	return resp.AppendCommand(nil, words...)
}

// unblock goes on with Redis's judgement of CLIENT UNBLOCK.
func (q *inquiry) unblock(judgement []byte) {
	if judgement[0] != ':' {
		q.answer(judgement)
		return
	}
	id, _ := strconv.ParseUint(string(q.args[0]), 10, 64) // 0, which is no client's, for a negative number
	l, _ := q.s.proxy.Clients.Get(id)
	target, ok := l.(*Session)
	if !ok {
		q.answer(judgement)
		return
	}
	how := command.Keyword(q.args, 1)
	done, conn, release := target.unblock(how == "error")
	switch {
	case done:
		q.answer(oneClient)
	case conn.ID == 0:
		q.answer(judgement)
	default:
		q.after = release
		q.ask(q.answer, []clients.Conn{conn}, func(id string) []byte {
			return resp.AppendCommand(nil, "CLIENT", "UNBLOCK", id, cmp.Or(how, "timeout"))
		})
	}
}

var oneClient = []byte(":1\r\n")

// ask sends a command about each of these connections to its server, and has next run with all replies, one after the
// other, on a goroutine of its own. If the session ends, next is not called. Requires no locks.
func (q *inquiry) ask(next func(replies []byte), conns []clients.Conn, command func(id string) []byte) {
	s := q.s
	s.mu.Lock()
	defer s.exit()
	if s.out.Gone() {
		q.finish(nil)
		return
	}
	to := &question{q: q, left: len(conns), next: next}
	for _, c := range conns {
		raw := command(strconv.FormatUint(c.ID, 10))
		conn := s.way.Conn(ordinaryRow, c.At)
		s.transmit(conn, raw, s.out.Slots.Add(conn, to, 1), 1)
	}
}

// answer ends the inquiry with its reply. Only the first call counts. Requires no locks.
func (q *inquiry) answer(words []byte) {
	q.conclude(func() { q.finish(words) })
}

// answerLast is answer for a client that has killed itself: the reply is the last that it gets.
func (q *inquiry) answerLast(words []byte) {
	q.conclude(func() {
		if !q.s.out.Gone() {
			q.s.goodbye(nil)
		}
		q.finish(words)
	})
}

func (q *inquiry) conclude(finish func()) {
	s := q.s
	defer s.host.Flush()
	s.mu.Lock()
	defer s.exit()
	finish()
	s.advance()
}

// finish gives the answer; nil: there is none. Requires the session lock.
func (q *inquiry) finish(words []byte) {
	if q.done {
		return
	}
	q.done = true
	s := q.s
	if !q.muted && words != nil {
		s.out.put(q.at, words, false)
	}
	if q.after != nil {
		s.afterUnlock = append(s.afterUnlock, q.after)
	}
	s.gathered = 0
	s.Resume()
	s.Answered(q.at, 1)
}

// question is the handler of Redis's replies to an inquiry.
type question struct {
	q       *inquiry
	left    int
	replies []byte
	next    func(replies []byte)
}

// Take implements reply.Handler. With the last reply the inquiry goes on.
func (q *question) Take(_ reply.ID, b []byte, n int, _ bool) int {
	s := q.q.s
	q.replies = append(q.replies, b...)
	s.gathered += len(b)
	if q.left -= n; q.left > 0 || q.q.done {
		return n
	}
	if s.out.Gone() {
		q.q.finish(nil)
		return n
	}
	s.afterUnlock = append(s.afterUnlock, func() {
		s.proxy.Aside(s.Addr, func() { q.next(q.replies) }, func() {
			s.Hungup()
			q.q.answer(nil)
		})
	})
	return n
}

// Lost implements reply.Handler. The inquiry ends.
func (q *question) Lost(reply.ID, int, bool) { q.q.finish(q.q.s.Refusal()) }

var _ reply.Handler = (*question)(nil)

// unblock ends the session's wait for a lock. If it has a connection to Redis on which it may be waiting, that is
// returned, and the session keeps it until release is called.
func (s *Session) unblock(withError bool) (done bool, conn clients.Conn, release func()) {
	s.mu.Lock()
	defer s.exit()
	switch {
	case s.out.Gone():
	case s.wait == waitLock:
		for _, e := range s.engines {
			if e.Unblock(s.ID, withError) {
				return true, conn, nil
			}
		}
	case s.pin != nil && s.pin.conn.ID() != 0:
		s.pin.borrowed++
		pin := s.pin
		return false, pin.number(), func() { s.unborrow(pin) }
	}
	return false, conn, nil
}
