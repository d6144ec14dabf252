package session

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// servers are those of a cluster, as package upstream knows them, or a test without servers.
type servers interface {
	// View is the present view.
	View() *topology.View

	// Refresh has then called from another goroutine when the view has been refreshed by a question that has begun
	// after this call.
	Refresh(hint topology.Node, then func())

	// Refused notes that a server has refused a command for another server's sake.
	Refused(why topology.RefusalReason)

	// Silent reports whether a server has not answered lately.
	Silent(at topology.Node) bool

	// FailoverWait is how long a command is sent again.
	FailoverWait() time.Duration
}

// cluster is the route to the servers of a cluster.
//
// The session uses a lane to each server that it needs, all at once: the effects on each key keep their order, as
// pause.go says. Commands by which others learn of the session's work wait until nothing is outstanding, and the
// commands behind them wait for their answers. So do commands of several keys: while their slot moves some keys are at
// one server and some at the other.
type cluster struct {
	s       *Session
	servers servers
	view    *topology.View // by which commands are placed
	others  []heldLane     // to servers that are not the present one
	alone   bool           // nothing is sent behind the last command before it is answered

	sending   int       // parcels that are on their way
	pause     *pause    // parcels were refused; nil: none has been that is not answered
	spare     []*parcel // answered ones
	sentBytes int       // of the parcels that are not answered: they may have to be sent again
	repeated  *request  // a command of a pin that is routed anew; nil: none

	queued   *queuedTx // a transaction whose EXEC has not come; nil: none
	mayMulti bool      // the identity has the right to MULTI
	watch    watch     // of the pin
}

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

var _ route = (*cluster)(nil)

// place implements route.
func (c *cluster) place(r *request) decision {
	s := c.s
	if r.row.Name == "info" && r.policy == command.Shared {
		r.policy = command.Augmented // it says that there is a cluster
	}
	if c.queued != nil {
		return decided(c.queue(r))
	}
	listening := c.listening()
	if listening && r.policy != command.PubSub && (s.ident.Proto == 2 || !s.pin.subscribed()) && !s.awaitQuiet() {
		return postponed // the last subscription may end
	}
	switch {
	case r.row.Name == "multi" && len(r.args) == 1 && !s.subscriber():
		return decided(c.begin(r))
	case s.pin == nil, c.onLanes(r):
		return c.placeOnLanes(r)
	case listening && s.subscriber() && r.redirected():
		return decided(r.answerWith(subscriberRefusal(s.cmd)))
	case s.pin.mode == readsReplies:
		return c.placeOnPin(r)
	case listening && r.policy == command.PubSub:
		return c.placeSubscription(r)
	}
	return undecided
}

// placeOnLanes finds the server of a command. Some need several, and some cannot be had.
func (c *cluster) placeOnLanes(r *request) decision {
	s := c.s
	due := s.out.Slots.Due() > 0
	if !due {
		c.adopt()
	}
	r.look()
	r.lookForChannels()
	if !r.asking { // else it has been sent elsewhere
		r.at = c.serverOf(r)
	}
	alone := r.several() || r.row.Barrier || r.row.Script && r.slot < 0
	if due && (alone || c.alone || c.pause != nil || c.outdated()) {
		s.awaitQuiet()
		return postponed
	}
	if c.alone = alone; due && r.at != topology.Any {
		c.turnTo(r.at)
	}
	return c.scatter(r)
}

// placeOnPin decides about a command that the pin's server cannot have as it is.
func (c *cluster) placeOnPin(r *request) decision {
	s, pin := c.s, c.s.pin
	r.asking = r.asking && pin.fresh // it has been routed to this pin so
	if r.policy == command.PubSub {
		return c.placeSubscription(r)
	}
	r.look()
	if !s.awaitQuiet() {
		return postponed
	}
	c.adopt()
	if !pin.fresh {
		if d := c.scatter(r); d != undecided {
			return d
		}
	}
	if r.slot < 0 {
		return undecided
	}
	owner := c.ownerOf(r.slot)
	fits := owner == pin.conn.At() // it may have moved since the WATCH
	if r.row.Name == "watch" {
		fits = r.slot == c.watch.slot
	}
	switch {
	case r.policy == command.Shared && (pin.tx.watching || !pin.fresh && !fits):
		r.at = owner
		c.copied(r.row, r.raw, r.aim).post(r.handler())
		return carriedOut
	case pin.tx.watching && !fits:
		return decided(r.answerWith(shared.CrossSlot))
	}
	return undecided
}

// send implements route.
func (c *cluster) send(r *request, raw []byte, h reply.Handler) {
	if c.s.pin != nil && !c.onLanes(r) {
		c.s.forward(r.row, raw, h, 1)
		return
	}
	c.copied(r.row, raw, r.aim).post(h)
}

// careful implements route: each command has a server.
func (*cluster) careful() bool { return true }

// patient implements route: another server may have the slot by now.
func (*cluster) patient() bool { return false }

// conn implements route.
func (c *cluster) conn(row *command.Row, at upstream.Node) connection { return c.laneTo(row, at) }

// refusal implements route.
func (c *cluster) refusal() []byte {
	if c.s.proxy.Upstream.Away() {
		return nil
	}
	return reply.ClusterDown
}

// mask implements route.
func (*cluster) mask(command string, reply []byte) []byte {
	if command == "info" {
		return scatter.Info(reply)
	}
	return scatter.Greeting(reply)
}

// script implements route.
func (c *cluster) script(call *scriptCall) sentScript {
	var to aim
	c.adopt()
	if keys := call.call.Keys; len(keys) == 0 {
		to.slot, to.at = -1, c.anyServer()
	} else {
		to.slot = hashslot.Of([]byte(keys[0]))
		to.at = c.ownerOf(to.slot)
	}
	p := c.copied(callRow, call.build(c.laneTo(callRow, to.at)), to)
	p.post(call)
	return p
}

// renew implements route.
func (c *cluster) renew() { c.mayMulti = false }

// drop implements route.
func (c *cluster) drop() {
	c.dropParcels()
	c.repeated, c.queued = nil, nil
}

// bytes implements route.
func (c *cluster) bytes() int {
	n := c.sentBytes
	if tx := c.queued; tx != nil {
		n += cap(tx.raw)
	}
	return n
}

// look finds the slot of the command, and its key.
func (r *request) look() {
	r.slot, r.key = -1, 0
	i := r.row.Keys.First(r.args)
	if i == 0 {
		return
	}
	if r.slot = hashslot.Of(r.args[i]); !r.row.Keys.Several(r.args) {
		r.key = maphash.Bytes(seed, r.args[i])
	}
}

var seed = maphash.MakeSeed()

// outdated reports whether there is a newer view. It is adopted when nothing is on its way: otherwise a command could
// overtake one that the old owner of its slot refuses.
func (c *cluster) outdated() bool { return c.view != c.servers.View() }

// adopt takes over the present view of the cluster. No parcel is on its way. Lanes to servers that serve no slots any
// more are left.
func (c *cluster) adopt() {
	if !c.outdated() {
		return
	}
	c.view = c.servers.View()
	c.leaveLanes(func(at upstream.Node) bool { return c.view.Primary(string(at)) == nil })
}

// ownerOf is the server of a slot; Any: none is known.
func (c *cluster) ownerOf(slot int) topology.Node { return ownerIn(c.view, slot) }

func ownerIn(v *topology.View, slot int) topology.Node {
	if node := v.Owner(slot); node != nil {
		return topology.Node(node.ID)
	}
	return topology.Any
}

// serverOf is the server of a command's slot; Any: none is known. A command without a key goes where the session is,
// unless that server has refused it.
func (c *cluster) serverOf(r *request) topology.Node {
	switch {
	case r.slot >= 0:
		return c.ownerOf(r.slot)
	case r.held: // it is routed anew
		return c.anyServer()
	}
	return c.home()
}

// home implements route.
func (c *cluster) home() upstream.Node {
	if lane := c.s.lane; lane != nil && lane.At() != topology.Any {
		return lane.At()
	}
	return c.anyServer()
}

// anyServer is one of the servers, if possible one that answers; Any: none is known.
func (c *cluster) anyServer() topology.Node {
	list := c.servers.View().Nodes()
	if len(list) == 0 {
		return topology.Any
	}
	first := rand.IntN(len(list))
	for i := range list {
		if at := topology.Node(list[(first+i)%len(list)].ID); !c.servers.Silent(at) {
			return at
		}
	}
	return topology.Node(list[first].ID)
}

// noteRefusal notes that a server has refused a command for another server's sake. It returns the server that has the
// key already; Any: none is known.
func (c *cluster) noteRefusal(why topology.Refusal, asked topology.Node) (asking topology.Node) {
	c.servers.Refused(why.Reason)
	hint := c.servers.View().Named(why, asked)
	switch {
	case hint == nil:
		return topology.Any
	case why.Reason == topology.Asking:
		return topology.Node(hint.ID)
	}
	c.servers.Refresh(topology.Node(hint.ID), nil)
	return topology.Any
}

// later has f called, with the session locked, after a pause and a refresh of the view.
func (c *cluster) later(hint topology.Node, pause time.Duration, f func()) {
	then := func() { c.s.Do(f) }
	if pause == 0 {
		c.servers.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { c.servers.Refresh(hint, then) })
}

// turnTo makes the lane to a server the present one.
func (c *cluster) turnTo(at upstream.Node) {
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
func (c *cluster) laneTo(row *command.Row, at upstream.Node) connection {
	if at == topology.Any {
		return nil
	}
	c.turnTo(at)
	return c.s.onLane(row)
}

// leave implements route.
func (c *cluster) leave() { c.leaveLanes(func(upstream.Node) bool { return true }) }

// leaveLanes leaves lanes on which nothing is outstanding.
func (c *cluster) leaveLanes(which func(at upstream.Node) bool) {
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
