package session

import (
	"bytes"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/inquiry"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/resp"
)

// asking is a CLIENT LIST, KILL or UNBLOCK on its way. The session waits meanwhile, and a slot is held for the reply.
type asking struct {
	s     *Session
	at    replies.ID // of the reply
	muted bool
	done  bool   // it has been answered
	after func() // called when it has been answered; requires no locks; nil: not called
}

// askAbout starts an inquiry. Nothing is outstanding.
func (s *Session) askAbout(raw []byte) bool {
	q := &asking{s: s, muted: s.muted}
	about := &inquiry.Inquiry{
		Session: q, Proxy: s.proxy, Client: s.ID, Args: resp.Split(bytes.Clone(raw), nil)[2:], Size: len(raw),
	}
	if s.pin != nil {
		s.pin.fresh = false
		s.pin.Queued++
	}
	s.wait = waitReply
	q.at = s.slots.Hold()
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

// Ask is inquiry.Session.
func (q *asking) Ask(next func(replies []byte), commands ...[]byte) {
	q.s.mu.Lock()
	defer q.s.exit()
	if q.s.gone() {
		q.finish(nil)
		return
	}
	q.ask(next, commands...)
}

// After is inquiry.Session.
func (q *asking) After(f func()) {
	q.s.mu.Lock()
	defer q.s.exit()
	q.after = f
}

// Answer is inquiry.Session.
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
		s.put(q.at, reply, false)
	}
	if q.after != nil {
		s.afterUnlock = append(s.afterUnlock, q.after)
	}
	s.gathered = 0
	s.resume()
	s.answered(q.at, 1)
}

// question is the handler of Redis's replies to an inquiry.
type question struct {
	q       *asking
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

// came counts replies. With the last one the inquiry goes on. Requires the session lock.
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
					q.q.Answer(nil)
				}
			}()
			q.next(q.replies)
		})
		if !started { // the server has ended
			q.q.Answer(nil)
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

// AnswerLast is inquiry.Session.
func (q *asking) AnswerLast(reply []byte) {
	q.conclude(func() { q.finishLast(reply) })
}

// finishLast is finish for a client that has killed itself: the reply is its last one.
func (q *asking) finishLast(reply []byte) {
	if q.muted {
		reply = reply[:0]
	}
	if s := q.s; !s.gone() {
		s.goodbye(nil)
	}
	q.finish(reply)
}

var _ inquiry.Session = (*asking)(nil)

var _ inquiry.Waiter = (*Session)(nil)
