package proxy

import (
	"bytes"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// txChange is an identity change that Redis has queued: it happens when EXEC gets to it.
type txChange struct {
	index int // position among the queued commands
	apply func(upstream.Identity) upstream.Identity
}

// transact sends one of MULTI, EXEC, DISCARD, WATCH, UNWATCH. What it did to the transaction is read from its reply, so
// the session is in a transaction exactly when Redis says so.
func (s *Session) transact(name string, raw []byte) bool {
	pin := s.pin
	if name == "exec" && pin.subTx {
		return s.execSubscriptions(raw)
	}
	pin.fresh = false
	h := &hook{s: s, muted: s.muted}
	switch name {
	case "multi":
		pin.queued = 0
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.inTx = true
			}
		}
	case "exec":
		h.whole = true
		h.done = func(reply []byte) { s.executed(pin, reply) }
	case "discard":
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.endTx()
			}
		}
	case "watch":
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.watching = true
			}
		}
	case "unwatch":
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.watching = false
			}
		}
	}
	// EXEC's reply is only kept whole if something in it matters here: it may be large.
	if name == "exec" && len(pin.changes) == 0 && s.pending == 0 {
		h.whole = false
	}
	s.query(raw, h)
	return true
}

func isOK(reply []byte) bool { return bytes.HasPrefix(reply, ok) }

// executed notes what EXEC did. reply is the start of its reply at least, and all of it if identity changes were queued.
func (s *Session) executed(pin *pinned, reply []byte) {
	if bytes.HasPrefix(reply, []byte("-")) && !bytes.HasPrefix(reply, []byte("-EXECABORT")) {
		return // EXEC without MULTI, or refused as a whole
	}
	if changes := pin.changes; len(changes) > 0 {
		if v, _, err := resp.Decode(reply); err == nil {
			for _, c := range changes {
				if c.index < len(v.Elems) && !v.Elems[c.index].IsError() {
					s.become(c.apply(s.ident))
				}
			}
		}
	}
	pin.endTx()
}

func (p *pinned) endTx() {
	p.inTx, p.watching, p.queued, p.changes, p.subTx = false, false, 0, nil, false
}
