package proxy

import (
	"bytes"
	"strconv"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/resp"
)

// subscriber is the state of a pin in pub/sub mode. There, replies cannot be counted by the connection: SUBSCRIBE answers
// once per channel, UNSUBSCRIBE once per channel there was, and in RESP2 messages look like replies. So every frame is looked
// at and given to the command that it answers, or to none. Redis counts a client's subscriptions in its confirmations, so at
// each point of the stream the session knows what Redis knows, and which frames can come.
type subscriber struct {
	channels, patterns, shards int64
	expect                     []expected // commands sent in this mode and not yet answered, in order
}

// expected is one of them.
type expected struct {
	to    receiver // of a reply that is no confirmation; nil inside a transaction: it has been passed on
	verb  string   // of a subscription command; ""
	left  int      // confirmations still to come, for those; 0: as many as there are subscriptions of its kind
	apply func(reply []byte)
	tx    []expected // for EXEC: what it executes
}

// subscribe sends a subscription command. Its frames are looked at from then on.
func (s *Session) subscribe(row *command.Row, raw []byte) bool {
	pin := s.pin
	if (pin.mode != readsFrames || pin.inTx || pin.opening > 0) && !s.awaitQuiet() {
		return false
	}
	e := expected{to: s.receiver(), verb: row.Name, left: len(s.args) - 1}
	if pin.inTx {
		pin.queue(txStep{verb: e.verb, left: e.left})
		s.forward(raw, e.to, 1)
		return true
	}
	s.readFrames()
	pin.queued++
	s.await(raw, e)
	return true
}

func (s *Session) readFrames() {
	if s.pin.mode == readsReplies {
		s.pin.mode = readsFrames
		s.pin.fresh = false
		// Redis keeps the hash tables of a connection's subscriptions at the size that they had, which shows in the order of
		// the replies to an UNSUBSCRIBE of everything.
		s.pin.spent = true
		s.pin.conn.ReadFrames()
	}
}

// readReplies leaves pub/sub mode. Nothing is outstanding.
func (s *Session) readReplies() {
	s.pin.mode = readsReplies
	s.pin.conn.ReadReplies()
}

// await sends a command in pub/sub mode.
func (s *Session) await(raw []byte, e expected) {
	s.pin.expect = append(s.pin.expect, e)
	s.pending++
	s.owed += len(raw)
	if s.pin.conn.Append(raw, nil, 0) != nil {
		s.pin.broken()
	}
}

func (p *pinned) subscribed() bool { return p.channels+p.patterns+p.shards > 0 }

// frame handles one whole frame in pub/sub mode.
func (s *Session) frame(b []byte, kind resp.Kind) { s.account(b, kind, true) }

// account gives a frame to the command that it answers. pass: it has not been given to the client yet.
func (s *Session) account(b []byte, kind resp.Kind, pass bool) {
	pin := s.pin
	verb, count := pubsubFrame(b)
	var head *expected
	if len(pin.expect) > 0 {
		head = &pin.expect[0]
	}
	switch {
	case head != nil && head.verb != "" && head.verb == verb:
		if head.left == 0 {
			head.left = int(max(1, pin.subscriptions(verb)))
		}
		pin.count(verb, count)
		if pass {
			s.emit(b)
		}
		if head.left--; head.left == 0 {
			pin.dequeue()
			s.answered(1)
		}
	case kind == resp.Push, pin.subscribed() && isMessage(verb), head == nil:
		pin.count(verb, count) // Redis ends subscriptions by itself when a slot moves away
		if pass {
			s.push(b)
		}
		if head == nil && s.pending == 0 {
			s.quiet()
		}
	case len(head.tx) > 0 && kind == resp.Array:
		s.executedFrames(b, pin.dequeue())
	default:
		e := pin.dequeue()
		if e.apply != nil {
			e.apply(b)
		}
		if pass {
			e.to.take(b, false)
		}
		s.answered(1)
	}
}

func (p *pinned) dequeue() expected {
	e := p.expect[0]
	p.expect[0] = expected{}
	p.expect = p.expect[1:]
	return e
}

// executedFrames handles the reply to an EXEC with subscription commands. They answer with any number of frames where one
// element belongs, so what follows the array may still belong to the transaction.
func (s *Session) executedFrames(b []byte, exec expected) {
	pin := s.pin
	exec.to.take(b, false)
	pin.expect = append(exec.tx, pin.expect...)
	s.pending += len(exec.tx)
	for _, elem := range elements(b) {
		s.account(elem, resp.Kind(elem[0]), false)
	}
	s.answered(1)
}

// subscriptions is how many there are of the kind that a verb ends.
func (p *pinned) subscriptions(verb string) int64 {
	switch verb {
	case "unsubscribe":
		return p.channels
	case "punsubscribe":
		return p.patterns
	case "sunsubscribe":
		return p.shards
	}
	return 0
}

// count takes the number in a confirmation: channels and patterns together, or shard channels.
func (p *pinned) count(verb string, n int64) {
	switch verb {
	case "subscribe", "unsubscribe":
		p.channels = n - p.patterns
	case "psubscribe", "punsubscribe":
		p.patterns = n - p.channels
	case "ssubscribe", "sunsubscribe":
		p.shards = n
	}
}

func isMessage(verb string) bool {
	switch verb {
	case "message", "pmessage", "smessage", "sunsubscribe":
		return true
	}
	return false
}

func notSubscribed(verb string) []byte {
	return resp.AppendError(nil, resp.Err, "Can't execute '"+verb+"': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / RESET are allowed in this context")
}

// pubsubFrame reads the first element of an array or push if it is a short string, and its last element if that is an
// integer.
func pubsubFrame(b []byte) (kind string, last int64) {
	if b[0] != '*' && b[0] != '>' {
		return "", 0
	}
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
