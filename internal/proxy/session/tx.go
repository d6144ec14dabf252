package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// transact sends one of MULTI, EXEC, DISCARD, WATCH, UNWATCH. What it did to the transaction is read from its reply, so
// the session is in a transaction exactly when Redis says so.
func (s *Session) transact(r *request) bool {
	name := r.row.Name
	pin := s.pin
	pin.fresh = false
	h := &reply.Reply{Session: s, Muted: r.muted}
	to := reply.Handler(h)
	switch name {
	case "multi":
		h.Done = pin.opens()
		h.Missed = s.partIfVital(r)
	case "exec":
		// The reply may be large: it is only kept whole if something in it matters here.
		h.Whole = len(pin.tx.steps) > 0
		if pin.tx.rewrites() {
			steps := pin.tx.steps
			h.Replace = func(reply []byte) []byte { return rewritten(reply, steps) }
		}
		h.Done = func(reply []byte) {
			s.Resume()
			s.executed(pin, reply)
		}
		if pin.tx.changes() { // the session may ask Redis here then: its question must not get into the next transaction
			s.wait = waitReply
		}
	case "discard":
		h.Done = func(reply []byte) {
			if resp.IsOK(reply) {
				pin.tx.end()
			}
		}
	case "watch":
		to = s.way.guard(r, h)
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
	r.forward(r.raw, to)
	return true
}

// executed notes what EXEC did. reply is the start of its reply at least, and all of it if a step matters.
func (s *Session) executed(pin *pinned, reply []byte) {
	if bytes.HasPrefix(reply, []byte("-")) && !bytes.HasPrefix(reply, []byte("-EXECABORT")) && !pin.tx.inTx {
		return // EXEC without MULTI
	}
	steps := pin.tx.steps
	pin.tx.end()
	if len(steps) == 0 {
		return
	}
	elems, _ := resp.Elements(reply)
	for _, step := range steps {
		if step.apply != nil && step.index < len(elems) {
			step.apply(elems[step.index])
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
