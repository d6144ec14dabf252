package proxy

import (
	"bytes"
	"strconv"

	"lockproxy/internal/resp"
)

// subscriber is the state of a pin in pub/sub mode. There, replies cannot be counted: SUBSCRIBE answers once per channel,
// UNSUBSCRIBE once per channel there was, and in RESP2 messages look like replies. So every frame is looked at, and where
// the session must know that all its commands are answered, it sends a barrier: a PING with a word of its own, whose
// answer is recognised and swallowed in every mode.
type subscriber struct {
	channels   int64  // subscriptions to channels and patterns, as Redis last counted them
	shards     int64  // subscriptions to shard channels
	unanswered int    // commands sent on this pin in frame mode before it was connected; only meaningful until then
	calm       bool   // everything sent has been answered
	barrier    []byte // the word of the barrier that is out; nil: none
	overtaken  bool   // something was sent after that barrier
	asked      *hook  // gets the next reply; only after a barrier
}

// subscribe sends a subscription command and reads frames from then on.
func (s *Session) subscribe(raw []byte) bool {
	if !s.awaitQuiet() {
		return false
	}
	if s.pin.inTx {
		s.pin.subTx = true
		s.pin.queued++
		s.forward(raw, s.receiver(), 1)
		return true
	}
	s.readFrames()
	s.pipe(raw)
	return true
}

// execSubscriptions sends an EXEC whose transaction holds subscription commands.
func (s *Session) execSubscriptions(raw []byte) bool {
	if !s.awaitQuiet() {
		return false
	}
	s.pin.endTx()
	s.readFrames()
	s.pipe(raw)
	s.sendBarrier()
	return true
}

func (s *Session) readFrames() {
	s.pin.mode = readsFrames
	s.pin.fresh = false
	s.pin.calm = true
	s.pin.conn.ReadFrames()
}

// pipe sends a command whose replies, however many, go to the client as they come.
func (s *Session) pipe(raw []byte) {
	s.pin.calm, s.pin.overtaken = false, true
	s.pin.unanswered++
	if err := s.pin.conn.Append(raw, nil, 0); err != nil {
		s.end()
	}
}

// sendBarrier asks for a sign that everything sent so far has been answered.
func (s *Session) sendBarrier() {
	if s.pin.barrier != nil {
		return
	}
	s.pin.barrier = s.env.barrierWord()
	s.pin.overtaken = false
	if err := s.pin.conn.Append(resp.AppendCommand(nil, "PING", string(s.pin.barrier)), nil, 0); err != nil {
		s.end()
	}
}

// awaitCalm makes the session wait until everything sent has been answered; true if it has been.
func (s *Session) awaitCalm() bool {
	if s.pin.calm {
		return true
	}
	s.wait = forFrame
	s.sendBarrier()
	return false
}

// routeFramed routes a command of a session in pub/sub mode.
func (s *Session) routeFramed(row *command, p policy, raw []byte) bool {
	switch {
	case s.ident.Proto == 2 && s.pin.subscribed():
		return s.routeSubscriber(row, p, raw)
	case s.pin.inTx && p != pubsub:
		// A barrier would be queued with the transaction, so commands go one by one.
		if p == locks {
			s.poison(notInTx)
		} else if p == tx {
			return s.transact(row.name, raw)
		} else {
			s.query(raw, &hook{s: s, muted: s.muted})
		}
		return true
	case p == locks:
		return s.awaitCalm() && s.lock(raw)
	case p == merged:
		if !s.awaitCalm() {
			return false
		}
		s.query(raw, s.mergeHook(row))
		return true
	case p == local:
		return s.awaitCalm() && s.localPinned(row, raw)
	case p == identity:
		return s.awaitCalm() && s.reidentify(row.name, raw)
	case p == tx:
		return s.awaitCalm() && s.transact(row.name, raw)
	}
	s.pipe(raw)
	return true
}

// routeSubscriber routes a command of a RESP2 subscriber: Redis refuses all but a few, and of those only QUIT and RESET
// mean something to the session. A lock command is refused here as Redis would refuse it.
func (s *Session) routeSubscriber(row *command, p policy, raw []byte) bool {
	switch {
	case p == locks:
		return s.awaitCalm() && s.answer(notSubscribed(row.name))
	case row.name == "quit", row.name == "reset":
		return s.awaitCalm() && s.localPinned(row, raw)
	}
	s.pipe(raw)
	return true
}

func (p *pinned) subscribed() bool { return p.channels+p.shards > 0 }

func notSubscribed(verb string) []byte {
	return resp.AppendError(nil, resp.Err, "Can't execute '"+verb+"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}

// ask sends one command whose reply h gets, in frame mode. Everything before has been answered.
func (s *Session) ask(raw []byte, h *hook) {
	s.pin.asked = h
	s.wait = forFrame
	s.pipe(raw)
}

// frame handles one whole frame in pub/sub mode.
func (s *Session) frame(b []byte, kind resp.Kind) {
	pin := s.pin
	if pin.barrier != nil && isBarrier(b, pin.barrier) {
		pin.barrier = nil
		pin.calm = !pin.overtaken
		s.calmed()
		return
	}
	class := pin.confirm(b)
	if h := pin.asked; h != nil && kind != '>' && class == other {
		pin.asked = nil
		pin.calm = true
		h.take(b, false)
		if s.pin == pin && pin.mode == readsFrames {
			s.calmed()
		}
		return
	}
	if kind == '>' || class == message {
		s.push(b)
	} else {
		s.emit(b)
	}
	if !pin.subscribed() && !pin.inTx && pin.asked == nil {
		s.sendBarrier()
	}
}

// calmed goes on after a barrier or an awaited reply, and leaves pub/sub mode if there is no subscription left.
func (s *Session) calmed() {
	pin := s.pin
	idle := !pin.subscribed() && !pin.inTx
	switch {
	case pin.calm && idle:
		s.readReplies()
	case !pin.calm && (idle || s.wait == forFrame):
		s.sendBarrier()
		return
	}
	if s.wait == forFrame {
		s.wait = nothing
	}
	s.releasePin()
}

// readReplies leaves pub/sub mode.
func (s *Session) readReplies() {
	s.pin.mode = readsReplies
	s.pin.conn.ReadReplies()
}

// isBarrier recognises the answer to PING word: the word, or in RESP2 pub/sub mode an array of "pong" and the word.
func isBarrier(b, word []byte) bool {
	tail := resp.AppendCommand(nil, word)[len("*1\r\n"):]
	return bytes.Equal(b, tail) || bytes.HasPrefix(b, []byte("*2\r\n$4\r\npong\r\n")) && bytes.HasSuffix(b, tail)
}

// frameClass is what an array in pub/sub mode is.
type frameClass uint8

const (
	other        frameClass = iota
	confirmation            // of a subscription or its end
	message
)

// confirm classifies a frame and keeps the counts of subscriptions that confirmations carry: the last element of
// (p|s)subscribe, name, count.
func (p *pinned) confirm(b []byte) frameClass {
	if b[0] != '*' && b[0] != '>' {
		return other
	}
	kind, last := pubsubFrame(b)
	switch kind {
	case "subscribe", "psubscribe", "unsubscribe", "punsubscribe":
		p.channels = last
		return confirmation
	case "ssubscribe", "sunsubscribe":
		p.shards = last
		return confirmation
	case "message", "pmessage", "smessage":
		return message
	}
	return other
}

// pubsubFrame reads the first element of an array or push if it is a short string, and its last element if that is an
// integer.
func pubsubFrame(b []byte) (kind string, last int64) {
	i := bytes.IndexByte(b, '\n') + 1
	if i >= len(b) || b[i] != '$' {
		return "", 0
	}
	start := i + bytes.IndexByte(b[i:], '\n') + 1
	n, err := strconv.Atoi(string(b[i+1 : max(i+1, start-2)]))
	if err != nil || n < 0 || n > len("punsubscribe") || start+n > len(b) {
		return "", 0
	}
	if colon := bytes.LastIndexByte(b, ':'); colon > start {
		last, _ = strconv.ParseInt(string(bytes.TrimRight(b[colon+1:], "\r\n")), 10, 64)
	}
	return string(b[start : start+n]), last
}
