package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// shards is the route to the servers of a cluster. Package cluster has what is on its way there.
//
// The session uses a lane to each server that it needs, all at once: the effects on each key keep their order, as
// package cluster says. Commands by which others learn of the session's work wait until nothing is outstanding, and the
// commands behind them wait for their answers. So do commands of several keys: while their slot moves some keys are at
// one server and some at the other.
type shards struct {
	s *Session
	cluster.Sender
	others []heldLane // to servers that are not the present one
	alone  bool       // nothing is sent behind the last command before it is answered

	queued  *queuedTx          // a transaction whose EXEC has not come; nil: none
	multiAs *upstream.Identity // has the right to MULTI; nil: not known of any
	watch   watch              // of the pin
}

// newShards is the route to servers of which a view is known.
func newShards(s *Session, servers cluster.Servers, v *topology.View) *shards {
	return &shards{s: s, Sender: cluster.Sender{Host: host{s}, Servers: servers, View: v}}
}

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

var _ route = (*shards)(nil)

// place implements route.
func (c *shards) place(r *request) decision {
	s := c.s
	if r.Row.Name == "info" && r.Policy == command.Shared {
		r.Policy = command.Augmented // it says that there is a cluster
	}
	if c.queued != nil {
		return decided(c.queue(r))
	}
	listening := c.listening()
	if listening && r.Policy != command.PubSub && (s.ident.Proto == 2 || !s.pin.subscribed()) && !s.awaitQuiet() {
		return postponed // the last subscription may end
	}
	switch {
	case r.Row.Name == "multi" && len(r.Args) == 1 && !s.subscriber():
		return decided(c.begin(r))
	case s.pin == nil:
		return c.placeOnLanes(r)
	case c.onLanes(r):
		return c.placeBeside(r)
	case listening && s.subscriber() && redirected(r):
		return decided(s.answer(r, subscriberRefusal(s.cmd)))
	case s.pin.mode == readsReplies:
		return c.placeOnPin(r)
	case listening && r.Policy == command.PubSub:
		return c.placeSubscription(r)
	}
	return undecided
}

// placeOnLanes finds the server of a command. Some need several, and some cannot be had.
func (c *shards) placeOnLanes(r *request) decision {
	s := c.s
	due := s.out.Slots.Due() > 0
	if !due {
		c.Adopt()
	}
	r.Look()
	lookForChannels(r)
	if !r.Asking { // else it has been sent elsewhere
		r.At = c.serverOf(r)
	}
	alone := r.Several() || r.Row.Barrier || r.Row.Script && r.Slot < 0
	if due && (alone || c.alone || c.Pauses() || c.Outdated()) {
		s.awaitQuiet()
		return postponed
	}
	if c.alone = alone; due && r.At != topology.Any {
		c.turnTo(r.At)
	}
	return c.scatter(r)
}

// placeOnPin decides about a command that the pin's server cannot have as it is.
func (c *shards) placeOnPin(r *request) decision {
	s, pin := c.s, c.s.pin
	r.Asking = r.Asking && pin.fresh             // it has been routed to this pin so
	if pin.fresh && r.Policy == command.Shared { // it was to be streamed, and has come in whole before
		pin.fresh = false
		s.releasePin()
		return c.placeOnLanes(r)
	}
	if r.Policy == command.PubSub {
		return c.placeSubscription(r)
	}
	r.Look()
	if !s.awaitQuiet() {
		return postponed
	}
	c.Adopt()
	if !pin.fresh {
		if d := c.scatter(r); d != undecided {
			return d
		}
	}
	if r.Slot < 0 {
		return undecided
	}
	owner := c.OwnerOf(r.Slot)
	fits := owner == pin.conn.At() // it may have moved since the WATCH
	if r.Row.Name == "watch" {
		fits = r.Slot == c.watch.slot
	}
	switch {
	case r.Policy == command.Shared:
		r.At = owner
		c.Copied(r.Row, r.Raw, r.Aim).Post(reply.Passing(r.Muted))
		return carriedOut
	case pin.tx.watching && !fits:
		return decided(s.answer(r, crossSlot))
	}
	return undecided
}

// send implements route.
func (c *shards) send(r *request, raw []byte, h reply.Handler) {
	if c.s.pin != nil && !c.onLanes(r) {
		c.s.forward(r.Row, raw, h, 1)
		return
	}
	c.Copied(r.Row, raw, r.Aim).Post(h)
}

// placesEach implements route.
func (*shards) placesEach() bool { return true }

// conn implements route.
func (c *shards) conn(row *command.Row, at upstream.Node) connection {
	if lane := c.laneTo(row, at); lane != nil {
		return lane
	}
	return nil
}

// refusal implements route.
func (c *shards) refusal() []byte {
	if c.s.proxy.Upstream.Away() {
		return nil
	}
	return reply.ClusterDown
}

// mask implements route.
func (*shards) mask(command string, reply []byte) []byte {
	if command == "info" {
		return scatter.Info(reply)
	}
	return scatter.Greeting(reply)
}

// script implements route.
func (c *shards) script(call *scriptCall) sentScript {
	var to command.Aim
	c.Adopt()
	if keys := call.call.Keys; len(keys) == 0 {
		to.Slot, to.At = -1, c.AnyServer()
	} else {
		to.Slot = hashslot.Of([]byte(keys[0]))
		to.At = c.OwnerOf(to.Slot)
	}
	p := c.Copied(callRow, call.build(c.conn(callRow, to.At)), to)
	p.Post(call)
	return sentParcel{p}
}

// drop implements route.
func (c *shards) drop() {
	c.Drop()
	c.queued = nil
}

// bytes implements route.
func (c *shards) bytes() int {
	n := c.Bytes()
	if tx := c.queued; tx != nil {
		n += cap(tx.raw)
	}
	return n
}

// serverOf is the server of a command's slot; Any: none is known. A command without a key goes where the session is,
// unless that server has refused it.
func (c *shards) serverOf(r *request) topology.Node {
	switch {
	case r.Slot >= 0:
		return c.OwnerOf(r.Slot)
	case r.Held: // it is routed anew
		return c.AnyServer()
	}
	return c.home()
}

// home implements route.
func (c *shards) home() upstream.Node {
	if lane := c.s.lane; lane != nil && lane.At() != topology.Any {
		return lane.At()
	}
	return c.AnyServer()
}

// turnTo makes the lane to a server the present one.
func (c *shards) turnTo(at upstream.Node) {
	s := c.s
	s.at = at
	if s.lane != nil && s.lane.At() == at {
		return
	}
	present := heldLane{s.lane, s.role}
	s.lane = nil
	for i, h := range c.others {
		if h.lane.At() == at {
			s.lane, s.role = h.lane, h.role
			c.others = slices.Delete(c.others, i, i+1)
			break
		}
	}
	if present.lane != nil {
		c.others = append(c.others, present)
	}
}

// laneTo is the session's lane to a server; nil: no server is known.
func (c *shards) laneTo(row *command.Row, at upstream.Node) *upstream.Lane {
	if at == topology.Any {
		return nil
	}
	c.turnTo(at)
	return c.s.onLane(row)
}

// leave implements route.
func (c *shards) leave() { c.leaveLanes(func(upstream.Node) bool { return true }) }

// leaveLanes leaves lanes on which nothing is outstanding.
func (c *shards) leaveLanes(which func(at upstream.Node) bool) {
	s := c.s
	if s.lane != nil && which(s.lane.At()) {
		s.proxy.Upstream.Lanes.Leave(s.lane)
		s.lane = nil
	}
	c.others = slices.DeleteFunc(c.others, func(h heldLane) bool {
		gone := which(h.lane.At())
		if gone {
			s.proxy.Upstream.Lanes.Leave(h.lane)
		}
		return gone
	})
}

// host is the session as package cluster sees it.
type host struct{ *Session }

var (
	_ cluster.Host = host{}
	_ keeper       = (*cluster.Parcel)(nil)
)

func (h host) shards() *shards { return h.way.(*shards) }

// Expect implements cluster.Host.
func (h host) Expect(row *command.Row, at topology.Node, to reply.Handler) reply.ID {
	h.unanswered += slotCost
	return h.out.Slots.Add(h.shards().conn(row, at), to, 1)
}

// Forget implements cluster.Host.
func (h host) Forget(place reply.ID) { h.out.Slots.Answer(place, 1) }

// Lane implements cluster.Host.
func (h host) Lane(row *command.Row, at topology.Node) *upstream.Lane {
	return h.shards().laneTo(row, at)
}

// TurnTo implements cluster.Host.
func (h host) TurnTo(at topology.Node) { h.shards().turnTo(at) }

// LeaveLanes implements cluster.Host.
func (h host) LeaveLanes(which func(at topology.Node) bool) { h.shards().leaveLanes(which) }

// Transmit implements cluster.Host.
func (h host) Transmit(by *upstream.Lane, raw []byte, place reply.ID, n int) {
	h.transmit(by, raw, place, n)
}

// Unsent implements cluster.Host.
func (h host) Unsent(place reply.ID) { h.lose(place, 1, false) }

// Pause implements cluster.Host: what is paused for has no answer yet.
func (h host) Pause() {
	if h.wait == waitNone || h.wait == waitTurn {
		h.wait = waitQuiet
	}
}

// Hopeful implements cluster.Host.
func (h host) Hopeful() bool { return !h.stranded() }

// Endures implements cluster.Host: the session keeps its locks.
func (h host) Endures() bool { return h.holds() && h.proxy.Upstream.Away() }

// Abandon implements cluster.Host.
func (h host) Abandon() { h.abandon() }

// GiveUp implements cluster.Host.
func (h host) GiveUp() { h.giveUp() }

// sentParcel is a script call on its way.
type sentParcel struct{ *cluster.Parcel }

func (p sentParcel) by() connection { return p.By() }

func (p sentParcel) again(_ reply.ID, raw []byte) { p.Again(raw) }
