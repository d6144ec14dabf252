package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// On a pin in pub/sub mode replies cannot be counted by the connection: SUBSCRIBE answers once per channel, UNSUBSCRIBE
// once per channel there was, and in RESP2 messages look like replies. So the session examines every frame, and assigns
// it to the command that it answers, or to none. Redis counts a client's subscriptions in its confirmations, so at each
// point of the stream the session knows what Redis knows, and which frames can come.
//
// A script in the debugger is read in this way, too. Its EVAL and each word of the debugger have one reply, and the
// result comes behind the last one.

// subscribe sends a subscription command. Its frames are examined from then on.
func (s *Session) subscribe(r *request) bool {
	pin := s.pin
	if (pin.mode != readsFrames || pin.tx.mayBeOpen()) && !s.awaitQuiet() {
		return false
	}
	if pin.tx.inTx { // it is malformed, and Redis says so
		pin.tx.count()
		s.way.Send(r, r.Raw, reply.Passing(r.Muted))
		return true
	}
	to := s.way.Guard(r, &frames{
		Reply: reply.Reply{Session: s, Muted: r.Muted}, subs: &pin.subscriptions, verb: r.Row.Name, left: len(r.Args) - 1,
	})
	s.readFrames()
	pin.tx.count()
	s.way.Send(r, r.Raw, to)
	return true
}

func (s *Session) readFrames() {
	if s.pin.mode == readsReplies {
		s.pin.mode = readsFrames
		s.pin.fresh = false
		s.pin.conn.ReadFrames()
	}
}

// readReplies leaves pub/sub mode. Nothing is outstanding.
func (s *Session) readReplies() {
	s.pin.mode = readsReplies
	s.pin.spent = s.pin.spent || s.pin.grown()
	s.pin.conn.ReadReplies()
}

// frame handles one whole frame in pub/sub mode.
func (s *Session) frame(b []byte, kind resp.Kind) {
	pin := s.pin
	verb, count := readFrame(b)
	at, h, due := s.out.Slots.First(pin.conn)
	f, _ := h.(*frames)
	if w, ok := h.(wrapper); ok {
		f, _ = w.Asker().(*frames)
	}
	switch {
	case f != nil && f.verb == verb:
		answered := f.confirm(count)
		s.out.put(at, b, false)
		s.Answered(at, answered)
	case pin.debugs && !due: // the result of the script
		s.out.push(b)
	case kind == resp.Push, pin.subscribed() && isMessage(verb), !due:
		pin.confirm(verb, count) // Redis ends subscriptions by itself when a slot moves away
		s.out.message(b)
		if s.out.Slots.Due() == 0 {
			s.quiet()
		}
	default:
		s.receive(at, b, 1, false)
	}
}

// loseFrames deals with the commands on a pin in pub/sub mode that get no reply.
func (s *Session) loseFrames(p *pinned, sent bool) {
	for {
		at, _, due := s.out.Slots.First(p.conn)
		if !due {
			return
		}
		s.lose(at, 1, sent)
	}
}

// frames is the handler of a subscription command, which any number of frames answers. A confirmation of its verb is
// given to confirm, and passes even to a client that sees no replies, as from Redis. Any other frame is a refusal.
type frames struct {
	reply.Reply
	subs *subscriptions
	verb string
	left int // confirmations still to come; 0: see confirm
}

// confirm takes a confirmation, and returns the number of commands that are answered by it. A command without arguments
// ends all subscriptions of its kind, and has a confirmation for each, but at least one.
func (f *frames) confirm(count int64) (answered int) {
	if f.left == 0 {
		f.left = int(f.subs.countOf(f.verb))
	}
	f.subs.confirm(f.verb, count)
	if f.left--; f.left > 0 {
		return 0
	}
	return 1
}
