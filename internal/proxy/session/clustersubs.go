package session

import (
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

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

// listening reports whether the session has a pin for subscriptions.
func (c *shards) listening() bool { return c.s.pin != nil && c.s.pin.mode == readsFrames }

// lookForChannels gives a command about channels the slot of PUBLISH.
func lookForChannels(r *request) {
	if r.Slot < 0 && (r.Policy == command.PubSub || r.Row.Name == "publish" || r.Row.Name == "pubsub") {
		r.Slot = publishSlot
	}
}

// onLanes reports whether a command goes to the lanes although the session has a pin: it is listening in RESP3. Commands
// about the connection stay on the pin, and so does everything in RESP2, where Redis refuses it.
func (c *shards) onLanes(r *request) bool {
	switch r.Policy {
	case command.PubSub, command.Identity, command.Local, command.AboutClients, command.Lock:
		return false
	default:
		return c.listening() && c.s.ident.Proto == 3
	}
}

// placeBeside finds the server of such a command. One with a key that needs another pin cannot be had.
func (c *shards) placeBeside(r *request) decision {
	if r.Policy == command.Shared && c.s.tooLarge(r) {
		r.Policy = command.PinOnce
	}
	d := c.placeOnLanes(r)
	switch {
	case d != undecided:
		return d
	case r.Policy == command.Shared, r.Policy == command.Augmented:
		return onLane
	case !c.s.awaitQuiet():
		return postponed
	case r.Slot >= 0:
		return decided(c.s.answer(r, listens))
	}
	return undecided
}

// redirected reports whether a server of a cluster may redirect the command before it looks at subscriptions.
func redirected(r *request) bool {
	return r.Policy != command.PubSub && !r.Row.Malformed(r.Args) && r.Row.Keys.First(r.Args) > 0
}

// placeSubscription finds the server of a subscription, for a session that has a pin.
func (c *shards) placeSubscription(r *request) decision {
	s, pin := c.s, c.s.pin
	r.Look()
	lookForChannels(r)
	if (pin.mode == readsReplies || !pin.subscribed()) && !s.awaitQuiet() {
		return postponed
	}
	owner := cluster.OwnerIn(c.Servers.View(), r.Slot)
	if pin.fresh || strings.HasSuffix(r.Row.Name, "unsubscribe") || owner == topology.Any || owner == pin.conn.At() {
		return undecided
	}
	return decided(s.awaitQuiet() && s.answer(r, otherServer))
}

// guardSubscription is guard for a subscription. The first one is routed anew if the pin's server refuses it.
func (c *shards) guardSubscription(r *request, to reply.Handler) reply.Handler {
	s, pin := c.s, c.s.pin
	if pin.unwatch == nil {
		pin.unwatch = s.proxy.Upstream.Watch(func() { s.Do(func() { c.viewChanged(pin) }) })
	}
	if !pin.subscribed() && !pin.tx.watching {
		r.Keep()
		return c.rerouted(pin, r, topology.ReadRefusal, to)
	}
	muted := r.Muted
	refused := func(at reply.ID, why topology.Refusal) bool {
		c.NoteRefusal(why, pin.conn.At())
		if !muted {
			s.out.put(at, otherServer, false)
		}
		return true
	}
	return &reply.Guarded{Session: s, To: to, Slot: r.Slot, Read: topology.ReadRefusal, Refused: refused}
}

// viewChanged closes the connection of a client whose subscriptions are not at their server any more: it serves no
// slots, or it is not the server of PUBLISH.
func (c *shards) viewChanged(pin *pinned) {
	v, at := c.Servers.View(), pin.conn.At()
	publisher := cluster.OwnerIn(v, publishSlot)
	moved := pin.Channels+pin.Patterns > 0 && publisher != topology.Any && publisher != at
	if c.s.pin == pin && pin.subscribed() && (moved || v.Primary(string(at)) == nil) {
		c.s.abandon()
	}
}
