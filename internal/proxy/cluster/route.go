package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Route is the way of a session's commands to the servers of a cluster. The session uses a lane to each server that it
// needs, all at once.
type Route struct {
	Host    Host
	Servers Servers
	View    *topology.View // by which commands are placed

	others []heldLane // to servers that are not the present one
	alone  bool       // nothing is sent behind the last command before it is answered

	// Parcels.
	sending int       // that are on their way
	pause   *pause    // some were refused; nil: none has been that is not answered
	spare   []*Parcel // answered ones
	bytes   int       // of those that are not answered: they may have to be sent again

	// Transactions and the pin.
	queued   *queuedTx          // a transaction whose EXEC has not come; nil: none
	multiAs  *upstream.Identity // has the right to MULTI; nil: not known of any
	watch    watch              // of the pin
	attempts topology.Attempts  // of the command that is routed anew
	unwatch  func()             // ends the watch over the view that subscriptions need; nil: there is none
}

// New is the route of a session to servers of which a view is known.
func New(h Host, servers Servers, v *topology.View) *Route {
	return &Route{Host: h, Servers: servers, View: v}
}

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

// pin is the session's pin and its state; nil: it has none.
func (c *Route) pin() (Pin, PinState) {
	if pin := c.Host.Pin(); pin != nil {
		return pin, pin.State()
	}
	return nil, PinState{}
}

// Place says where a command goes, which is about to be routed, or answers it.
func (c *Route) Place(r *command.Request) command.Decision {
	if r.Row.Name == "info" && r.Policy == command.Shared {
		r.Policy = command.Augmented // it says that there is a cluster
	}
	switch {
	case c.queued == nil:
	case r.Row.Name == "reset", r.Row.Name == "quit":
		c.queued = nil
	default:
		return command.Decided(c.queue(r))
	}
	pin, state := c.pin()
	subscriber := state.Subscribed && state.Listens && c.Host.Identity().Proto == 2
	if state.Listens && r.Policy != command.PubSub && (c.Host.Identity().Proto == 2 || !state.Subscribed) {
		if !c.Host.AwaitQuiet() {
			return command.Postponed // the last subscription may end
		}
	}
	switch {
	case r.Row.Name == "multi" && len(r.Args) == 1 && !subscriber:
		return command.Decided(c.begin(r))
	case pin == nil:
		return c.placeOnLanes(r)
	case c.onLanes(r):
		return c.placeBeside(r)
	case subscriber && redirected(r):
		return command.Decided(c.Host.Answer(r, command.SubscriberRefusal(r.Row.TitleOf(r.Raw))))
	case state.Answers:
		return c.placeOnPin(r)
	case state.Listens && r.Policy == command.PubSub:
		return c.placeSubscription(r)
	}
	return command.Undecided
}

// placeOnLanes finds the server of a command. Some need several, and some cannot be had.
func (c *Route) placeOnLanes(r *command.Request) command.Decision {
	busy := c.sending > 0 || c.Pauses()
	if !busy {
		c.Adopt()
	}
	r.Look()
	lookForChannels(r)
	if !r.Asking { // else it has been sent elsewhere
		r.At = c.serverOf(r)
	}
	alone := r.Several() || r.Row.Barrier || r.Row.Script && r.Slot < 0
	if (alone || busy && (c.alone || c.Pauses() || c.Outdated())) && !c.Host.AwaitQuiet() {
		return command.Postponed
	}
	if c.alone = alone; busy && r.At != topology.Any {
		c.turnTo(r.At)
	}
	return c.scatter(r)
}

// placeOnPin decides about a command that the pin's server cannot have as it is.
func (c *Route) placeOnPin(r *command.Request) command.Decision {
	pin, state := c.pin()
	r.Asking = r.Asking && state.Fresh             // it has been routed to this pin so
	if state.Fresh && r.Policy == command.Shared { // it was to be streamed, and has come in whole before
		pin.Leave(false)
		return c.placeOnLanes(r)
	}
	if r.Policy == command.PubSub {
		return c.placeSubscription(r)
	}
	r.Look()
	if !c.Host.AwaitQuiet() {
		return command.Postponed
	}
	c.Adopt()
	if !state.Fresh {
		if d := c.scatter(r); d != command.Undecided {
			return d
		}
	}
	if r.Slot < 0 {
		return command.Undecided
	}
	owner := c.OwnerOf(r.Slot)
	fits := owner == pin.At() // it may have moved since the WATCH
	if r.Row.Name == "watch" {
		fits = r.Slot == c.watch.slot
	}
	switch {
	case r.Policy == command.Shared:
		r.At = owner
		c.Copied(r.Row, r.Raw, r.Aim).Post(reply.Passing(r.Muted))
		return command.CarriedOut
	case state.Watching && !fits:
		return command.Decided(c.Host.Answer(r, crossSlot))
	}
	return command.Undecided
}

// Send sends a command, in these words, where it has been placed. h handles the reply; nil: it passes to the client.
func (c *Route) Send(r *command.Request, raw []byte, h reply.Handler) {
	if pin := c.Host.Pin(); pin != nil && !c.onLanes(r) {
		pin.Send(raw, h, 1)
		return
	}
	c.Copied(r.Row, raw, r.Aim).Post(h)
}

// PlacesEach reports that each command has a server of its own.
func (*Route) PlacesEach() bool { return true }

// Conn is a connection to a server; nil: no server is known.
func (c *Route) Conn(row *command.Row, at upstream.Node) upstream.Connection {
	if lane := c.laneTo(row, at); lane != nil {
		return lane
	}
	return nil
}

// Refusal is the reply to a command that was not sent, because no server of it can be reached; nil: there is none.
func (c *Route) Refusal() []byte {
	if c.Servers.Away() {
		return nil
	}
	return clusterDown
}

// Mask has a reply to HELLO or INFO say that there is one server.
func (*Route) Mask(command string, reply []byte) []byte {
	if command == "info" {
		return scatter.Info(reply)
	}
	return scatter.Greeting(reply)
}

// Script sends a call of a script with these keys. build makes the command for the connection by which it is sent; nil:
// no server is known.
func (c *Route) Script(keys []string, build func(upstream.Connection) []byte, h reply.Handler) reply.Sent {
	var to command.Aim
	c.Adopt()
	if len(keys) == 0 {
		to.Slot, to.At = -1, c.AnyServer()
	} else {
		to.Slot = hashslot.Of([]byte(keys[0]))
		to.At = c.OwnerOf(to.Slot)
	}
	p := c.Copied(scriptRow, build(c.Conn(scriptRow, to.At)), to)
	p.Post(h)
	return p
}

var scriptRow = &command.Row{Writes: true}

// Drop gives up everything: the session has ended.
func (c *Route) Drop() {
	c.giveUp()
	c.queued = nil
	if c.unwatch != nil {
		c.unwatch()
		c.unwatch = nil
	}
}

// Bytes is the memory that the route holds for the client.
func (c *Route) Bytes() int {
	n := c.bytes
	if tx := c.queued; tx != nil {
		n += cap(tx.raw)
	}
	return n
}

// serverOf is the server of a command's slot; Any: none is known. A command without a key goes where the session is,
// unless that server has refused it.
func (c *Route) serverOf(r *command.Request) topology.Node {
	switch {
	case r.Slot >= 0:
		return c.OwnerOf(r.Slot)
	case r.Held: // it is routed anew
		return c.AnyServer()
	}
	return c.Home()
}

// Home is the server for commands without a key; Any: none is known.
func (c *Route) Home() upstream.Node {
	if lane, _ := c.Host.Present(); lane != nil && lane.At() != topology.Any {
		return lane.At()
	}
	return c.AnyServer()
}

// turnTo makes the lane to a server the present one.
func (c *Route) turnTo(at upstream.Node) {
	present, role := c.Host.Present()
	if present != nil && present.At() == at {
		return
	}
	var next heldLane
	for i, h := range c.others {
		if h.lane.At() == at {
			next = h
			c.others = slices.Delete(c.others, i, i+1)
			break
		}
	}
	c.Host.TurnTo(next.lane, next.role)
	if present != nil {
		c.others = append(c.others, heldLane{present, role})
	}
}

// laneTo is the session's lane to a server; nil: no server is known.
func (c *Route) laneTo(row *command.Row, at upstream.Node) *upstream.Lane {
	if at == topology.Any {
		return nil
	}
	c.turnTo(at)
	return c.Host.Lane(row, at)
}

// Leave leaves the lanes.
func (c *Route) Leave() { c.leaveLanes(func(upstream.Node) bool { return true }) }

// leaveLanes leaves lanes on which nothing is outstanding.
func (c *Route) leaveLanes(which func(at upstream.Node) bool) {
	if lane, _ := c.Host.Present(); lane != nil && which(lane.At()) {
		c.Host.Leave(lane)
		c.Host.TurnTo(nil, 0)
	}
	c.others = slices.DeleteFunc(c.others, func(h heldLane) bool {
		gone := which(h.lane.At())
		if gone {
			c.Host.Leave(h.lane)
		}
		return gone
	})
}
