package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// transact sends one of MULTI, EXEC, DISCARD, WATCH, UNWATCH. What it did to the transaction is read from its reply, so
// the session is in a transaction exactly when Redis says so.
func (s *Session) transact(r *request) bool {
	name := r.Row.Name
	pin := s.pin
	pin.fresh = false
	h := &reply.Reply{Session: s, Muted: r.Muted}
	to := reply.Handler(h)
	switch name {
	case "multi":
		h.Done = pin.opens()
		h.Missed = s.partIfVital(r)
	case "exec":
		h.Done = func(reply []byte) {
			s.Resume()
			s.executed(pin, reply)
		}
		if len(pin.tx.changes) > 0 {
			h.Whole = true     // it may be large, and is kept whole only if something in it matters here
			s.wait = waitReply // the next commands must travel under the new identity
		}
	case "discard":
		h.Done = func(reply []byte) {
			if resp.IsOK(reply) {
				pin.tx.end()
			}
		}
	case "watch":
		to = s.way.Guard(r, h)
		h.Missed = s.partIfVital(r)
		h.Done = func(reply []byte) { pin.tx.watching = pin.tx.watching || resp.IsOK(reply) }
	case "unwatch":
		pin.tx.count()
		h.Done = func(reply []byte) {
			if resp.IsOK(reply) {
				pin.tx.watching = false
			}
		}
	}
	s.way.Send(r, r.Raw, to)
	return true
}

// executed notes what EXEC did. reply is the start of its reply at least, and all of it if an identity change was
// queued. Behind an AUTH that Redis has accepted the connection ends: whose the commands of the transaction were, and
// those behind it, is no question worth an answer.
func (s *Session) executed(pin *pinned, reply []byte) {
	if bytes.HasPrefix(reply, []byte("-")) && !bytes.HasPrefix(reply, []byte("-EXECABORT")) && !pin.tx.inTx {
		return // EXEC without MULTI
	}
	changes := pin.tx.changes
	if reply[0] == '*' && reply[1] != '-' {
		pin.spent, pin.keep = pin.spent || pin.tx.traces, pin.keep || pin.tx.keeps
	}
	pin.tx.end()
	if len(changes) == 0 {
		return
	}
	elems, _ := resp.Elements(reply)
	for _, c := range changes {
		switch {
		case c.index >= len(elems): // nothing was carried out
		case c.Auth && elems[c.index][0] != '-':
			s.goodbye(nil)
			return
		default:
			s.judgedOnPin(c.identityChange, elems[c.index])
		}
	}
}

// opens returns the function that takes the reply to the MULTI that is sent next.
func (p *pinned) opens() func(reply []byte) {
	p.tx.opening++
	base := p.tx.queued
	return func(reply []byte) {
		if p.tx.opening--; resp.IsOK(reply) {
			p.tx.opened(base)
		}
	}
}
