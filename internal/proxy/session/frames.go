package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
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
	first := pin.mode != readsFrames || s.clustered() && !pin.subscribed()
	if (first || pin.tx.mayBeOpen()) && !s.awaitQuiet() {
		return false
	}
	switch {
	case pin.tx.inTx && r.row.Malformed(r.args):
		return s.sendStep(r, step{}) // Redis says so
	case pin.tx.inTx:
		return s.poison(r, noSubscriptionsInTx)
	}
	var to reply.Handler = &frames{
		session: s, subs: &pin.subscriptions, muted: r.muted, verb: r.row.Name, left: len(r.args) - 1,
	}
	if s.clustered() {
		r.look()
		if r.lookForChannels(); !pin.fresh && pin.belongsElsewhere(r) {
			return s.awaitQuiet() && r.answerWith(otherServer)
		}
		to = pin.atServer(r, to)
	}
	s.readFrames()
	pin.tx.count()
	r.forward(r.raw, to)
	return true
}

// Any number of frames would stand in the place of one element of the reply to EXEC.
var noSubscriptionsInTx = resp.AppendError(nil, resp.Err, "subscriptions are not possible inside a transaction")

// In front of a cluster the subscriptions of a session are on its pin, too: channels and patterns at the server of
// PUBLISH, shard channels at the server of their slot. In RESP3 the commands between them go to the lanes.

// publishSlot is the slot to whose server all PUBLISH and the subscriptions to channels belong. With one server for
// both, messages reach each subscriber in order, and PUBLISH counts the subscribers.
const publishSlot = 0

var (
	otherServer = resp.AppendRawError(nil,
		"CROSSSLOT the subscriptions of a connection are at one server: use another connection")
	listens = resp.AppendError(nil, resp.Err,
		"not possible on a connection with subscriptions in front of a cluster: use another connection")
)

// listening reports whether the session has a pin for subscriptions in front of a cluster.
func (s *Session) listening() bool { return s.clustered() && s.pin != nil && s.pin.mode == readsFrames }

// lookForChannels gives a command about channels the slot of PUBLISH.
func (r *request) lookForChannels() {
	if r.slot < 0 && (r.policy == command.PubSub || r.row.Name == "publish" || r.row.Name == "pubsub") {
		r.slot = publishSlot
	}
}

// onLanes reports whether a command of a session that is listening goes to the lanes. Commands about the connection
// stay on the pin, and so does everything in RESP2, where Redis refuses it.
func (s *Session) onLanes(r *request) bool {
	switch r.policy {
	case command.PubSub, command.Identity, command.Local, command.AboutClients, command.Lock:
		return false
	default:
		return s.ident.Proto == 3
	}
}

// redirected reports whether a server of a cluster may redirect the command before it looks at subscriptions.
func (r *request) redirected() bool {
	return r.policy != command.PubSub && !r.row.Malformed(r.args) && r.row.Keys.First(r.args) > 0
}

// belongsElsewhere reports whether a subscription belongs to another server than that of the pin.
func (p *pinned) belongsElsewhere(r *request) bool {
	if strings.HasSuffix(r.row.Name, "unsubscribe") {
		return false
	}
	owner := ownerIn(p.s.cluster.View(), r.slot)
	return owner != topology.Any && owner != p.conn.At()
}

// atServer returns the handler of a subscription command that the server of the pin may refuse. The first one is then
// routed anew.
func (p *pinned) atServer(r *request, to reply.Handler) reply.Handler {
	s := p.s
	if !p.subscribed() && !p.tx.watching {
		r.keep()
		return p.rerouted(r, r.slot, topology.ReadRefusal, to)
	}
	muted := r.muted
	refused := func(at reply.ID, why topology.Refusal) bool {
		s.noteRefusal(why, p.conn.At())
		if !muted {
			s.out.put(at, otherServer, false)
		}
		return true
	}
	return &reply.Guarded{Session: s, To: to, Slot: r.slot, Read: topology.ReadRefusal, Refused: refused}
}

// viewChanged closes the connection of a client whose subscriptions are not at their server any more: it serves no
// slots, or it is not the server of PUBLISH. Requires no locks.
func (p *pinned) viewChanged() {
	p.s.Do(func() {
		v, at := p.s.cluster.View(), p.conn.At()
		publisher := ownerIn(v, publishSlot)
		moved := p.Channels+p.Patterns > 0 && publisher != topology.Any && publisher != at
		if p.s.pin == p && p.subscribed() && (moved || v.Primary(string(at)) == nil) {
			p.s.abandon()
		}
	})
}

func (s *Session) readFrames() {
	if s.pin.mode == readsReplies {
		s.pin.mode = readsFrames
		s.pin.fresh = false
		s.pin.conn.ReadFrames()
		if s.clustered() {
			s.pin.unwatch = s.proxy.Upstream.Watch(s.pin.viewChanged)
		}
	}
}

// readReplies leaves pub/sub mode. Nothing is outstanding.
func (s *Session) readReplies() {
	s.pin.mode = readsReplies
	s.pin.spent = s.pin.spent || s.pin.grown()
	s.pin.conn.ReadReplies()
	s.pin.endWatch()
}

// frame handles one whole frame in pub/sub mode.
func (s *Session) frame(b []byte, kind resp.Kind) {
	pin := s.pin
	verb, count := readFrame(b)
	at, h, due := s.out.Slots.First(pin.conn)
	f, _ := h.(*frames)
	if g, ok := h.(*reply.Guarded); ok {
		f, _ = g.To.(*frames)
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
