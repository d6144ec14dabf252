package proxy

import (
	"bytes"
	"slices"

	"lockproxy/internal/resp"
)

// txStep is a queued command that matters to the session: what it does, it does when EXEC gets to it.
type txStep struct {
	index   int                       // position among the queued commands
	apply   func(reply []byte)        // what it does to the session; nil: nothing
	rewrite func(reply []byte) []byte // what the client is to see of its reply; nil: all
	verb    string                    // of a subscription command; ""
	left    int                       // its confirmations
}

// transaction is what a pin knows of the transaction that is open on it, as far as Redis has confirmed it.
type transaction struct {
	inTx     bool
	watching bool
	opening  int // MULTIs without an answer yet
	queued   int // commands sent that a transaction would queue, ever
	base     int // queued when this transaction began
	steps    []txStep
	names    int // bytes of the names in steps
}

// queue notes the command that is sent next.
func (tx *transaction) queue(step txStep) {
	step.index = tx.queued - tx.base
	tx.queued++
	tx.steps = append(tx.steps, step)
}

func (tx *transaction) subscribes() bool {
	for _, step := range tx.steps {
		if step.verb != "" {
			return true
		}
	}
	return false
}

func (tx *transaction) end() { tx.inTx, tx.watching, tx.steps, tx.names = false, false, nil, 0 }

// transact sends one of MULTI, EXEC, DISCARD, WATCH, UNWATCH. What it did to the transaction is read from its reply, so
// the session is in a transaction exactly when Redis says so.
func (s *Session) transact(name string, raw []byte) bool {
	pin := s.pin
	if name == "exec" && pin.subscribes() {
		return s.execSubscriptions(raw)
	}
	pin.fresh = false
	h := &replyHandler{s: s, muted: s.muted}
	switch name {
	case "multi":
		pin.opening++
		base := pin.queued
		h.done = func(reply []byte) {
			pin.opening--
			if isOK(reply) {
				pin.inTx, pin.base, pin.steps, pin.names = true, base, nil, 0
			}
		}
	case "exec":
		// The reply may be large: it is only kept whole if something in it matters here.
		h.whole = len(pin.steps) > 0
		if pin.rewrites() {
			steps := pin.steps
			h.replace = func(reply []byte) []byte { return rewritten(reply, steps) }
		}
		h.done = func(reply []byte) { s.executed(pin, reply) }
	case "discard":
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.end()
			}
		}
	case "watch":
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.watching = true
			}
		}
	case "unwatch":
		pin.queued++
		h.done = func(reply []byte) {
			if isOK(reply) {
				pin.watching = false
			}
		}
	}
	s.forward(raw, h, 1)
	return true
}

func (tx *transaction) rewrites() bool {
	return slices.ContainsFunc(tx.steps, func(step txStep) bool { return step.rewrite != nil })
}

// rewritten is the reply to EXEC as the client is to see it.
func rewritten(reply []byte, steps []txStep) []byte {
	if reply[0] != '*' || reply[1] == '-' {
		return reply
	}
	elems := elements(reply)
	for _, step := range steps {
		if step.rewrite != nil && step.index < len(elems) {
			elems[step.index] = step.rewrite(elems[step.index])
		}
	}
	return slices.Concat(reply[:bytes.IndexByte(reply, '\n')+1], bytes.Join(elems, nil))
}

func isOK(reply []byte) bool { return bytes.HasPrefix(reply, okReply) }

// executed notes what EXEC did. reply is the start of its reply at least, and all of it if a step matters.
func (s *Session) executed(pin *pinned, reply []byte) {
	if bytes.HasPrefix(reply, []byte("-")) && !bytes.HasPrefix(reply, []byte("-EXECABORT")) {
		return // EXEC without MULTI
	}
	steps := pin.steps
	pin.end()
	if len(steps) == 0 || reply[0] != '*' {
		return
	}
	elems := elements(reply)
	for _, step := range steps {
		if step.apply != nil && step.index < len(elems) {
			step.apply(elems[step.index])
		}
	}
}

// elements splits an array reply.
func elements(b []byte) [][]byte {
	var all [][]byte
	var scan resp.Scanner
	for rest := b[bytes.IndexByte(b, '\n')+1:]; len(rest) > 0; {
		n, whole, err := scan.Scan(rest)
		if err != nil || !whole {
			panic("BUG: an element of a whole reply is not whole")
		}
		all = append(all, rest[:n])
		rest = rest[n:]
	}
	return all
}

// execSubscriptions sends an EXEC whose transaction holds subscription commands.
func (s *Session) execSubscriptions(raw []byte) bool {
	if !s.awaitQuiet() {
		return false
	}
	pin := s.pin
	list := make([]expected, pin.queued-pin.base)
	for _, step := range pin.steps {
		list[step.index] = expected{verb: step.verb, left: step.left, apply: step.apply}
	}
	s.readFrames()
	pin.execution = &frames{s: s, muted: s.muted, list: list, exec: &replyHandler{s: s, muted: s.muted, done: func(reply []byte) {
		if !bytes.HasPrefix(reply, []byte("-")) || bytes.HasPrefix(reply, []byte("-EXECABORT")) {
			pin.end()
		}
	}}}
	s.forward(raw, pin.execution, 1)
	return true
}
