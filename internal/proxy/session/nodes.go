package session

import (
	"math/rand/v2"
	"slices"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/parts"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/internal/upstream/cluster"
	"lockproxy/internal/upstream/keyspec"
	"lockproxy/internal/upstream/slots"
)

// In a cluster the session uses a lane to each server that it needs. A command for another server than those before it waits until nothing is
// outstanding. So the commands take effect in the order sent. Several lanes have commands of the session at a time only if these are
// reads, or the parts of one divided command, or if the operator asks for the order of each key only.
//
// The session routes by one view of the cluster, and by the next one when nothing is on its way. Otherwise a command could overtake one that the
// old owner of its slot refuses.

// nodes is the session's use of the servers of a cluster. In front of one server all of it stays empty.
type nodes struct {
	s      *Session
	view   *cluster.View // nil: there is no cluster
	others []heldLane    // lanes to servers that are not the present one

	// Of the command being routed.
	target upstream.Node
	slot   int          // of its first key; -1: it has none
	fixed  bool         // it concerns the target, whatever happens
	keys   keyspec.Spec // where its keys are, if it runs a script
	asks   bool         // it is sent behind an ASKING

	wrote   bool      // a command that may write has been sent since nothing was outstanding
	alone   bool      // nothing is sent behind the last command: it has several keys, and has to wait while only some of them have moved
	flying  int       // errands that have been sent and are not answered
	parked  []*errand // refused ones, in the order of their slots for the replies
	resting bool      // they wait for a new view
	spare   []*errand
	kept    int // bytes of the commands that are on their way or parked

	repeated *repetition // nil: none
}

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

// aim finds the server of the command being routed, and makes the session wait if commands are outstanding at another one. false: it waits.
func (n *nodes) aim(row *command.Row) bool {
	s := n.s
	if s.slots.Due() == 0 {
		n.adopt()
	}
	if n.look(row); row.Name == "publish" {
		n.slot = 0 // messages by one server reach each subscriber in order
	}
	n.target = n.serverOf(n.slot)
	if r := n.repeated; r != nil && r.asking != upstream.AnyNode {
		n.target, n.asks = r.asking, true
	}
	if s.slots.Due() == 0 {
		n.wrote = false
	} else if n.alone || row.Barrier || len(n.parked) > 0 || s.lane == nil || s.lane.At() != n.target && !n.free(row) {
		return s.awaitQuiet()
	} else {
		n.turnTo(n.target)
	}
	n.alone, n.wrote = row.Keys.Several(s.args), n.wrote || row.Writes
	return true
}

// free reports whether the command being routed may be sent while commands are outstanding at another server: reads have no effect that could come
// too early, or the operator asks for the order of each key only.
func (n *nodes) free(row *command.Row) bool {
	if row.Policy != command.Shared || row.Script || n.slot < 0 {
		return false
	}
	return n.s.proxy.Settings.Cluster.ByKey || !n.wrote && !row.Writes
}

// look finds the slot of the command being routed.
func (n *nodes) look(row *command.Row) {
	n.slot, n.fixed, n.asks, n.keys = -1, false, false, keyspec.Spec{}
	if row.Script {
		n.keys = row.Keys
	}
	if i := row.Keys.First(n.s.args); i > 0 {
		n.slot = slots.Of(n.s.args[i])
	}
}

// serverOf is the server of a slot; AnyNode: none is known. A command without a key goes where the session is.
func (n *nodes) serverOf(slot int) upstream.Node {
	if slot < 0 {
		return n.home()
	}
	if node := n.view.Owner(slot); node != nil {
		return upstream.Node(node.ID)
	}
	return upstream.AnyNode
}

// home is the server for commands without a key.
func (n *nodes) home() upstream.Node {
	s := n.s
	if n.view == nil {
		return upstream.AnyNode
	}
	if s.lane != nil && s.lane.At() != upstream.AnyNode {
		return s.lane.At()
	}
	return n.chance()
}

// chance is one of the servers; AnyNode: none is known.
func (n *nodes) chance() upstream.Node {
	list := n.view.Nodes()
	if len(list) == 0 {
		return upstream.AnyNode
	}
	return upstream.Node(list[rand.IntN(len(list))].ID)
}

// adopt takes over the present view of the cluster. No errand is on its way. Lanes to servers that serve no slots any more are left.
func (n *nodes) adopt() {
	s := n.s
	if n.view == nil || n.view == s.proxy.Upstream.View() {
		return
	}
	n.view = s.proxy.Upstream.View()
	n.leaveIf(func(at upstream.Node) bool { return n.view.Primary(string(at)) == nil })
}

// leaveIf leaves lanes on which nothing is outstanding.
func (n *nodes) leaveIf(which func(at upstream.Node) bool) {
	s := n.s
	if s.lane != nil && which(s.lane.At()) {
		s.proxy.Upstream.Leave(s.lane)
		s.lane = nil
	}
	n.others = slices.DeleteFunc(n.others, func(h heldLane) bool {
		gone := which(h.lane.At())
		if gone {
			s.proxy.Upstream.Leave(h.lane)
		}
		return gone
	})
}

// leaveOthers leaves all lanes but the present one.
func (n *nodes) leaveOthers() {
	for i, h := range n.others {
		n.s.proxy.Upstream.Leave(h.lane)
		n.others[i] = heldLane{}
	}
	n.others = n.others[:0]
}

// turnTo makes the lane to a server the present one.
func (n *nodes) turnTo(at upstream.Node) {
	s := n.s
	n.target = at
	if s.lane != nil && s.lane.At() == at {
		return
	}
	present := heldLane{s.lane, s.role}
	s.lane = nil
	for i, h := range n.others {
		if h.lane.At() == at {
			s.lane, s.role = h.lane, h.role
			n.others = slices.Delete(n.others, i, i+1)
			break
		}
	}
	if present.lane != nil {
		n.others = append(n.others, present)
	}
}

var (
	noCluster   = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")
	noLocksHere = resp.AppendError(nil, resp.Err, "lock commands are not available in front of a cluster")
)

// whole handles a command that concerns the cluster, not one server of it. handled is false for other commands. done is false if the command must
// wait.
func (n *nodes) whole(row *command.Row, p command.Policy, raw []byte) (handled, done bool) {
	s := n.s
	switch row.Name {
	case "cluster", "readonly", "readwrite", "asking": // as a server that is no part of a cluster
		if row.Name != "cluster" || len(s.args) > 1 {
			return true, s.awaitQuiet() && s.answer(noCluster)
		}
	case "scan":
		return n.scan(raw)
	}
	switch {
	case p == command.Lock:
		return true, s.awaitQuiet() && s.answer(noLocksHere)
	case (p == command.PinForever || p == command.PinRaw || p == command.Replication) && row.Title != "": // its state would be that of one server
		return true, s.awaitQuiet() && s.answer(resp.AppendError(nil, resp.Err, row.Name+" is not available in front of a cluster"))
	}
	if split, join := parts.Split(row.Name, s.args); split != nil && !s.proxy.Settings.Cluster.Refuses {
		if !s.awaitQuiet() {
			return true, false
		}
		g := n.gather(len(split), join)
		for i, part := range split {
			n.slot = part.Slot
			n.target = n.serverOf(part.Slot)
			s.send(part.Raw, g.part(i))
		}
		return true, true
	}
	if command.IsOwnInfo(s.args) {
		return false, false
	}
	if join := parts.Everywhere(row.Name, command.Keyword(s.args, 1)); join != nil {
		if !s.awaitQuiet() {
			return true, false
		}
		return true, n.everywhere(row, raw, join)
	}
	return false, false
}

// everywhere sends a command to all servers. Nothing is outstanding.
func (n *nodes) everywhere(row *command.Row, raw []byte, join parts.Join) bool {
	s := n.s
	list := n.view.Nodes()
	if len(list) == 0 {
		return s.answer(shared.NoUpstream)
	}
	g := n.gather(len(list), join)
	if row.Name == "info" {
		g.edit = s.augment(row, len(raw)).replace
	}
	n.slot, n.fixed = -1, true
	for i, node := range list {
		n.target = upstream.Node(node.ID)
		s.send(raw, g.part(i))
	}
	return true
}

// scan sends a SCAN to the server that its cursor names.
func (n *nodes) scan(raw []byte) (handled, done bool) {
	s := n.s
	if len(s.args) < 2 {
		return false, false
	}
	cursor, ok := parts.ReadCursor(s.args[1])
	if !ok {
		return false, false
	}
	if !s.awaitQuiet() {
		return true, false
	}
	view := n.view
	node, own := cursor.At(view)
	if node == nil {
		return true, s.answer(shared.NoUpstream)
	}
	n.target, n.slot, n.fixed = upstream.Node(node.ID), -1, true
	s.send(parts.WithCursor(s.args, own), &replyHandler{s: s, muted: s.muted, replace: func(reply []byte) []byte { return cursor.Follow(view, reply) }})
	return true, true
}

// gathering collects the replies to the parts of a command. The session waits meanwhile, and a slot is held for the joined reply.
type gathering struct {
	s       *Session
	at      replies.ID
	muted   bool
	join    parts.Join
	edit    func([]byte) []byte // of the joined reply; nil: it stays
	replies [][]byte
	left    int
}

// part handles the reply to one part.
type part struct {
	*gathering
	i int
}

// gather begins a command of n parts. Nothing is outstanding.
func (n *nodes) gather(count int, join parts.Join) *gathering {
	s := n.s
	s.wait = waitReply
	return &gathering{s: s, at: s.slots.Hold(), muted: s.muted, join: join, replies: make([][]byte, count), left: count}
}

func (g *gathering) part(i int) *part { return &part{g, i} }

// take is handler.
func (p *part) take(_ replies.ID, b []byte, n int, more bool) int {
	p.replies[p.i] = append(p.replies[p.i], b...)
	p.s.gathered += len(b)
	if !more {
		p.came()
	}
	return n
}

// lost is handler.
func (p *part) lost(replies.ID, int, bool) {
	p.replies[p.i] = append(p.replies[p.i][:0], p.s.refusal()...)
	p.came()
}

// came counts replies; with the last one the command is answered.
func (g *gathering) came() {
	if g.left--; g.left > 0 {
		return
	}
	s := g.s
	s.gathered = 0
	if s.gone() {
		s.slots.Answer(g.at, 1)
		return
	}
	reply := g.join(g.replies)
	if g.edit != nil {
		reply = g.edit(reply)
	}
	if !g.muted {
		s.put(g.at, reply, false)
	}
	s.resume()
	s.answered(g.at, 1)
}

var _ handler = (*part)(nil)
