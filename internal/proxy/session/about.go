package session

import (
	"bytes"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// asking is a CLIENT LIST, KILL or UNBLOCK on its way. The session waits meanwhile, and a slot is held for the reply.
type asking struct {
	s     *Session
	at    reply.ID // of the reply
	muted bool
	done  bool   // it has been answered
	after func() // called when it has been answered; requires no locks; nil: not called
}

// askAbout starts an inquiry. Nothing is outstanding.
func (s *Session) askAbout(raw []byte) bool {
	q := &asking{s: s, muted: s.muted}
	about := &Inquiry{
		Asker: q, Proxy: s.proxy, Client: s.ID, Args: resp.Split(bytes.Clone(raw), nil)[2:], Size: len(raw),
	}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.Count(raw)
	}
	s.wait = waitReply
	q.at = s.out.Slots.Hold()
	s.gathered = len(raw)
	judged, next := about.Start(command.Keyword(s.args, 1), raw)
	q.ask(next, judged)
	return true
}

// ask sends commands to Redis, and has next run with all their replies, one after the other. Requires the session lock.
func (q *asking) ask(next func(replies []byte), commands ...[]byte) {
	to := &question{q: q, left: len(commands), next: next}
	for _, raw := range commands {
		q.s.forward(raw, to, 1)
	}
}

// Ask implements Session.
func (q *asking) Ask(next func(replies []byte), commands ...[]byte) {
	q.s.mu.Lock()
	defer q.s.exit()
	if q.s.out.Gone() {
		q.finish(nil)
		return
	}
	q.ask(next, commands...)
}

// After implements Session.
func (q *asking) After(f func()) {
	q.s.mu.Lock()
	defer q.s.exit()
	q.after = f
}

// Answer implements Session.
func (q *asking) Answer(reply []byte) {
	q.conclude(func() { q.finish(reply) })
}

func (q *asking) conclude(finish func()) {
	s := q.s
	defer s.host.Flush()
	s.mu.Lock()
	defer s.exit()
	finish()
	s.advance()
}

// finish gives the answer; nil: there is none. Requires the session lock.
func (q *asking) finish(reply []byte) {
	if q.done {
		return
	}
	q.done = true
	s := q.s
	if !q.muted && reply != nil {
		s.out.Put(q.at, reply, false)
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
	q       *asking
	left    int
	replies []byte
	next    func(replies []byte)
}

// Take implements reply.Handler.
func (q *question) Take(_ reply.ID, b []byte, n int, _ bool) int {
	q.replies = append(q.replies, b...)
	q.q.s.gathered += len(b)
	q.came(n)
	return n
}

// came counts replies. With the last one the inquiry goes on. Requires the session lock.
func (q *question) came(n int) {
	if q.left -= n; q.left > 0 || q.q.done {
		return
	}
	s := q.q.s
	if s.out.Gone() {
		q.q.finish(nil)
		return
	}
	s.afterUnlock = append(s.afterUnlock, func() {
		s.proxy.Aside(s.Addr, func() { q.next(q.replies) }, func() {
			s.Hungup()
			q.q.Answer(nil)
		})
	})
}

// Lost implements reply.Handler. The inquiry ends.
func (q *question) Lost(reply.ID, int, bool) {
	if q.q.s.out.Gone() {
		q.q.finish(nil)
		return
	}
	q.q.finish(shared.NoUpstream)
}

var _ reply.Handler = (*question)(nil)

// AnswerLast implements Session.
func (q *asking) AnswerLast(reply []byte) {
	q.conclude(func() { q.finishLast(reply) })
}

// finishLast is finish for a client that has killed itself: the reply is its last one.
func (q *asking) finishLast(reply []byte) {
	if q.muted {
		reply = reply[:0]
	}
	if s := q.s; !s.out.Gone() {
		s.goodbye(nil)
	}
	q.finish(reply)
}

var _ Asker = (*asking)(nil)

var _ Waiter = (*Session)(nil)

// Describe implements clients.Visible.
func (s *Session) Describe() (clients.Info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.described(), !s.ended
}

// described is describe. Requires the session lock.
func (s *Session) described() clients.Info {
	c := clients.Info{
		Idle: max(s.proxy.Clock.Load()-s.active, 0) / 1000,
		Name: s.name, LibName: s.lib[0], LibVer: s.lib[1], Cmd: s.cmd,
		User: clients.UserOf(s.ident.User), DB: s.ident.DB, Resp: s.ident.Proto, Multi: -1,
		Waits: s.wait == waitLock && s.out.Slots.Due() == 0, Closes: s.closing || s.wait == waitGoodbye,
		Query: int64(s.in.Len()), QueryFree: int64(s.in.Cap() - s.in.Len()), Total: int64(s.bytes()),
		Unread: int64(s.out.Unread()), Writing: s.out.Out.Writing(),
	}
	n, free, chunks := s.out.Out.Sizes()
	c.Out, c.OutFree, c.Chunks = int64(n), int64(free), int64(chunks)
	s.Origin.DescribeTo(&c)
	if p := s.pin; p != nil {
		c.Conn = p.conn.ID()
		c.Redir, c.RedirConn = s.redir.Client, s.redir.Conn
		c.Subs, c.Patterns, c.Shards = p.Channels, p.Patterns, p.Shards
		c.Monitors = p.mode == readsRaw && p.reason == "monitor"
		c.Replicates = p.mode == readsRaw && !c.Monitors
		if p.InTx {
			c.Multi = p.Queued - p.Base
		}
	}
	if s.ears.Listening() {
		c.Subs, c.Patterns, c.Shards = s.ears.Counts()
	}
	return c
}

// KillIf implements clients.Visible.
func (s *Session) KillIf(match func(*clients.Info) bool) bool {
	s.mu.Lock()
	defer s.exit()
	if c := s.described(); s.ended || !match(&c) {
		return false
	}
	s.end()
	return true
}

var _ clients.Visible = (*Session)(nil)

// Status describes one client connection for people.
type Status struct {
	ID         uint64
	Addr, Name string
	Identity   string // without its password
	Since      time.Time
	State      string    // the reason of its wait; empty: it does not wait
	Lock       string    // for which it waits; empty: for none
	Asked      time.Time // when it asked for Lock
	Pin        string    // the command that made a pin necessary; empty: it has none
	Unanswered int       // commands sent to Redis whose replies have not come
	Unread     int       // bytes that the client has not taken
	Paused     bool      // it is not read at present
	SetAside   bool      // its lane stands still
}

// waitNames are the reasons of a wait for people.
var waitNames = [...]string{
	waitNone: "", waitTurn: "turn", waitTaken: "client", waitQuiet: "replies", waitPin: "pin", waitReply: "reply", waitLock: "lock", waitEngine: "engine", waitDoor: "admission", waitGoodbye: "closing",
}

// Status describes the client.
func (s *Session) Status() Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := Status{
		ID: s.ID, Addr: s.Addr, Name: s.name, Identity: s.ident.String(), Since: s.Since,
		State: waitNames[s.wait], Unanswered: s.out.Slots.Due(), Unread: s.out.Unread(), Paused: s.paused,
		SetAside: s.lane != nil && s.lane.Unsettled(),
	}
	if s.pin != nil {
		c.Pin = s.pin.reason
	}
	if s.wait == waitLock {
		for _, e := range s.engines {
			if lock, since, ok := e.WaitsFor(s.ID); ok {
				c.Lock, c.Asked = lock, since
			}
		}
	}
	return c
}
