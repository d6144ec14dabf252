package proxy

import (
	"bytes"

	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// replyMode is what CLIENT REPLY was told.
type replyMode uint8

const (
	replyOn replyMode = iota
	replyOff
	replySkip // the next command gets no reply
)

// Replies of our own that never vary.
var (
	ok         = []byte("+OK\r\n")
	noUpstream = resp.AppendError(nil, resp.NoUpstream, "upstream is not reachable, nothing was sent")
	noPinFree  = resp.AppendError(nil, resp.Overloaded, "no upstream connection is free for this command (max-pins), nothing was sent")
	notInTx    = resp.AppendError(nil, resp.Err, "Command not allowed inside a transaction")
)

// route sends one command where its policy says. false: not now; the session's wait says why, and the command is parsed
// again when that is over.
func (s *Session) route(row *command, raw []byte) bool {
	s.args = resp.Split(raw, s.args[:0])
	s.muted = s.reply != replyOn
	skip := s.reply == replySkip
	p := row.policyOf(s.args)
	if p == identity && s.env.opts.ClientAuth == AuthNone {
		if raw = s.disown(row.name, raw); raw == nil {
			return s.awaitQuiet() && s.answer(ok)
		}
	}
	var routed bool
	switch {
	case s.pin == nil:
		routed = s.routeShared(row, p, raw)
	case s.pin.mode == readsRaw:
		routed = s.routeRaw(p, raw)
	case s.pin.mode == readsFrames:
		routed = s.routeFramed(row, p, raw)
	default:
		routed = s.routePinned(row, p, raw)
	}
	if routed && skip {
		s.reply = replyOn
	}
	return routed
}

// receiver is who gets a reply that passes as it is.
func (s *Session) receiver() upstream.Receiver {
	if s.muted {
		return discard{s}
	}
	return s
}

// answer is the reply, made here, to the command being routed. Nothing is outstanding.
func (s *Session) answer(b []byte) bool {
	if !s.muted {
		s.emit(b)
	}
	return true
}

// awaitQuiet makes the session wait until nothing is outstanding; true if nothing is.
func (s *Session) awaitQuiet() bool {
	if s.pending == 0 {
		return true
	}
	s.wait = forQuiet
	return false
}

// routeShared routes a command of a session that has no pin.
func (s *Session) routeShared(row *command, p policy, raw []byte) bool {
	switch p {
	case shared:
		s.forward(raw, s.receiver(), 1)
		return true
	case merged:
		s.forward(raw, s.mergeHook(row), 1)
		return true
	case local:
		return s.awaitQuiet() && s.local(row, raw)
	case locks:
		return s.lock(raw)
	}
	if !s.awaitQuiet() {
		return false
	}
	if s.noPin {
		s.noPin = false
		return s.answer(noPinFree)
	}
	if !s.takePin(row.name) {
		return false
	}
	return s.routePinned(row, p, raw)
}

// routePinned routes a command of a session whose pin answers each command once.
func (s *Session) routePinned(row *command, p policy, raw []byte) bool {
	pin, to := s.pin, s.receiver()
	switch p {
	case tx:
		return s.transact(row.name, raw)
	case identity:
		return s.reidentify(row.name, raw)
	case pubsub:
		return s.subscribe(raw)
	case pinAlive:
		return s.keepPin(row, raw)
	case pinRaw:
		return s.routeUnread(raw)
	case offset:
		if pin.fresh {
			// WAIT counts replicas from the end of the connection's last command, so a command on this connection after
			// those on the lane makes it cover them.
			s.forward(ping, discard{s}, 1)
		}
	case locks, local:
		if !s.awaitQuiet() {
			return false
		}
		if pin.inTx {
			return s.queueLocal(p, raw)
		}
		if p == locks {
			return s.lock(raw)
		}
		return s.localPinned(row, raw)
	case merged:
		to = s.mergeHook(row)
	}
	pin.fresh = false
	pin.queued++
	s.forward(raw, to, 1)
	return true
}

var ping = resp.AppendCommand(nil, "PING")

// keepPin sends a command after which the connection must stay the session's own.
func (s *Session) keepPin(row *command, raw []byte) bool {
	pin := s.pin
	pin.fresh = false
	pin.queued++
	kept := pin.keep
	pin.keep = true
	h := &hook{s: s, muted: s.muted}
	if !row.listed {
		h.done = func(reply []byte) {
			if bytes.HasPrefix(reply, []byte("-ERR unknown command")) {
				pin.keep = kept // it did nothing to the connection
			}
		}
	}
	s.forward(raw, h, 1)
	return true
}

// queueLocal is for commands answered here that come inside a transaction, where Redis would queue them.
func (s *Session) queueLocal(p policy, raw []byte) bool {
	switch {
	case p == locks, argument(s.args, 0) == "client" && argument(s.args, 1) == "reply":
		s.poison(notInTx)
		return true
	case argument(s.args, 0) == "reset", argument(s.args, 0) == "quit":
		return s.localPinned(nil, raw)
	}
	s.pin.queued++
	s.forward(raw, s.receiver(), 1)
	return true
}

// poison answers err and makes the open transaction fail, as a command does that Redis refuses to queue.
func (s *Session) poison(err []byte) {
	s.query(malformed, &hook{s: s, muted: s.muted, replace: func([]byte) []byte { return err }})
}

// malformed is refused by every Redis before it does anything.
var malformed = resp.AppendCommand(nil, "EVALSHA")
