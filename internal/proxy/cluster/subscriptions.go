package cluster

import (
	"strings"

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
func (c *Route) listening() bool {
	_, state := c.pin()
	return state.Listens
}

// lookForChannels gives a command about channels the slot of PUBLISH.
func lookForChannels(r *command.Request) {
	if r.Slot < 0 && (r.Policy == command.PubSub || r.Row.Name == "publish" || r.Row.Name == "pubsub") {
		r.Slot = publishSlot
	}
}

// onLanes reports whether a command goes to the lanes although the session has a pin: it is listening in RESP3. Commands
// about the connection stay on the pin, and so does everything in RESP2, where Redis refuses it.
func (c *Route) onLanes(r *command.Request) bool {
	switch r.Policy {
	case command.PubSub, command.Identity, command.Local, command.AboutClients, command.Lock:
		return false
	default:
		return c.listening() && c.Host.Identity().Proto == 3
	}
}

// placeBeside finds the server of such a command. One with a key that needs another pin cannot be had.
func (c *Route) placeBeside(r *command.Request) command.Decision {
	if r.Policy == command.Shared && int64(len(r.Raw)) > c.Servers.MaxShared() {
		r.Policy = command.PinOnce
	}
	d := c.placeOnLanes(r)
	switch {
	case d != command.Undecided:
		return d
	case r.Policy == command.Shared, r.Policy == command.Augmented:
		return command.OnLane
	case !c.Host.AwaitQuiet():
		return command.Postponed
	case r.Slot >= 0:
		return command.Decided(c.Host.Answer(r, listens))
	}
	return command.Undecided
}

// redirected reports whether a server of a cluster may redirect the command before it looks at subscriptions.
func redirected(r *command.Request) bool {
	return r.Policy != command.PubSub && !r.Row.Malformed(r.Args) && r.Row.Keys.First(r.Args) > 0
}

// placeSubscription finds the server of a subscription, for a session that has a pin.
func (c *Route) placeSubscription(r *command.Request) command.Decision {
	pin, state := c.pin()
	r.Look()
	lookForChannels(r)
	if (state.Answers || !state.Subscribed) && !c.Host.AwaitQuiet() {
		return command.Postponed
	}
	owner := OwnerIn(c.Servers.View(), r.Slot)
	if state.Fresh || strings.HasSuffix(r.Row.Name, "unsubscribe") || owner == topology.Any || owner == pin.At() {
		return command.Undecided
	}
	return command.Decided(c.Host.AwaitQuiet() && c.Host.Answer(r, otherServer))
}

// guardSubscription is Guard for a subscription. The first one is routed anew if the pin's server refuses it.
func (c *Route) guardSubscription(r *command.Request, to reply.Handler) reply.Handler {
	pin, state := c.pin()
	if c.unwatch == nil {
		c.unwatch = c.Servers.Watch(func() { c.Host.Do(c.viewChanged) })
	}
	if !state.Subscribed && !state.Watching {
		c.keep(r)
		return c.rerouted(pin, r, to)
	}
	muted := r.Muted
	refused := func(at reply.ID, why topology.Refusal) bool {
		c.NoteRefusal(why, pin.At())
		if !muted {
			c.Host.Put(at, otherServer, false)
		}
		return true
	}
	return &guarded{host: c.Host, to: to, slot: r.Slot, refused: refused}
}

// viewChanged closes the connection of a client whose subscriptions are not at their server any more: it serves no
// slots, or it is not the server of PUBLISH.
func (c *Route) viewChanged() {
	pin, state := c.pin()
	if !state.Subscribed {
		return
	}
	v, at := c.Servers.View(), pin.At()
	publisher := OwnerIn(v, publishSlot)
	if state.Channels && publisher != topology.Any && publisher != at || v.Primary(string(at)) == nil {
		c.Host.Abandon()
	}
}
