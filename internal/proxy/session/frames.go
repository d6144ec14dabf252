package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/pubsub"
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
	switch {
	case pin.tx.inTx && r.row.Malformed(r.args):
		return s.sendStep(r, step{}) // Redis says so
	case pin.tx.inTx:
		return s.poison(r, noSubscriptionsInTx)
	}
	s.readFrames()
	pin.tx.count()
	r.forward(r.raw, &frames{
		session: s, subs: &pin.subscriptions, muted: r.muted, verb: r.row.Name, left: len(r.args) - 1,
	})
	return true
}

// Any number of frames would stand in the place of one element of the reply to EXEC.
var noSubscriptionsInTx = resp.AppendError(nil, resp.Err, "subscriptions are not possible inside a transaction")

// listen routes the commands of a session in front of a cluster that its subscriptions concern. They do not occupy its
// pin.
func (s *Session) listen(r *request) decision {
	name := r.row.Name
	subscribes := r.policy == command.PubSub
	switch { // commands that Redis judges
	case s.guard.Restricted(), subscribes && len(r.args) < 2 && !strings.HasSuffix(name, "unsubscribe"):
		return undecided
	case subscribes:
	case s.ident.Proto == 3, r.row.Malformed(r.args), name == "quit", name == "reset", name == "ping" && len(r.args) > 2:
		return undecided
	}
	if !s.awaitQuiet() {
		return postponed
	}
	switch {
	case subscribes && s.pin != nil && s.pin.tx.inTx:
		return decided(s.poison(r, noSubscriptionsInTx))
	case subscribes:
		s.wait = waitReply
		s.clusterSubs.Ask(name, r.args[1:], s.ident.Proto, s.out.Slots.Hold(), r.muted)
		return carriedOut
	case name == "ping":
		return decided(r.answerWith(pong(r.args[1:])))
	}
	return decided(r.answerWith(subscriberRefusal(s.cmd)))
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
	switch {
	case f != nil && f.verb == verb:
		answered := f.confirm(count)
		s.out.put(at, b, false)
		s.Answered(at, answered)
	case pin.debugs && !due: // the result of the script
		s.out.push(b)
	case kind == resp.Push, pin.subscribed() && pubsub.IsMessage(verb), !due:
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
