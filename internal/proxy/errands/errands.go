package errands

import (
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Session is what errands need of the session. All methods but Do require its lock.
type Session interface {
	reply.Gatherer

	// Take returns a slot for the reply to a command that is to be sent to a server; Any: to none. waiting: the bytes
	// of the command, if it is not sent at once.
	Take(at topology.Node, h reply.Handler, waiting int) reply.ID

	// Transmit sends n commands to a server for the reply in a slot.
	Transmit(at topology.Node, raw []byte, id reply.ID, n int)

	// Lose says that the command of a slot could not be sent.
	Lose(id reply.ID)

	// Hopeless reports whether the present lane refuses for another reason than that its server is away.
	Hopeless() bool

	// Leave leaves the lanes to some servers. Nothing is outstanding there.
	Leave(which func(at topology.Node) bool)

	// GiveUp says that the command of a slot gets no reply.
	GiveUp(id reply.ID)

	// Do runs f with the session locked, and has the session go on, unless the client gets no more.
	Do(f func()) bool
}

// A Cluster knows the servers.
type Cluster interface {
	// View is the present view; nil: there is one server, and no cluster.
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

// A Route is the way of the command being routed.
type Route struct {
	Target topology.Node
	Slot   int           // of its first key; negative: it has none
	Many   bool          // it has several keys
	Fixed  bool          // it concerns the target, whatever happens
	Heirs  bool          // as Fixed, but it concerns the successor of a target that has been demoted
	Asks   bool          // it is sent behind an ASKING
	key    uint64        // a hash of its only key; 0: it has none, or several
	keys   commands.Spec // where its keys are, if it runs a script
	writes bool          // it may change data
}

var seed = maphash.MakeSeed()

// Look finds the slot of a command, and its key.
func (r *Route) Look(row *command.Row, args [][]byte) {
	*r = Route{Target: r.Target, Slot: -1, Many: row.Keys.Several(args), writes: row.Writes || row.Script}
	if row.Script {
		r.keys = row.Keys
	}
	i := row.Keys.First(args)
	if i == 0 {
		return
	}
	if r.Slot = hashslot.Of(args[i]); !r.Many {
		r.key = maphash.Bytes(seed, args[i])
	}
}

// subject is what commands concern whose order counts: a key.
type subject struct {
	slot int
	key  uint64 // 0: there is none, or several
}

// Part prepares the way of a part of a command that many servers carry out. The parts have no order among themselves.
func (r *Route) Part(i int, at topology.Node) { r.Slot, r.Target = -2-i, at }

// Direct prepares the way of a command with these keys, which is sent when nothing else is on its way.
func (n *Errands) Direct(keys []string) {
	n.Adopt()
	n.Route = Route{Slot: -1}
	if len(keys) > 0 {
		n.Slot = hashslot.Of([]byte(keys[0]))
		n.Target = n.Owner(n.Slot)
	} else {
		n.Target = n.Chance()
	}
}

// Errands are the commands of one session that are on their way to the servers of a cluster. In front of one server all
// of it stays empty.
type Errands struct {
	view *topology.View // nil: there is no cluster
	Route
	session Session
	cluster Cluster

	servers []*server             // to which the session has sent commands
	queues  map[subject][]*Errand // by key: a refused command, and those behind it
	resting []*Errand             // the refused ones that wait for a new view
	spare   []*Errand             // answered ones
	kept    int                   // bytes of the commands that are not answered
	writings
}

// server is what a session has sent to a server, whose replies come in that order.
type server struct {
	node topology.Node
	last *Errand // the last one; nil: it has been answered
}

// Open prepares the errands of a session.
func (n *Errands) Open(s Session, c Cluster) { n.session, n.cluster, n.view = s, c, c.View() }

// Clustered reports whether there is a cluster.
func (n *Errands) Clustered() bool { return n.view != nil }

// Seen is the view by which the session routes; nil: there is no cluster.
func (n *Errands) Seen() *topology.View { return n.view }

// Outdated reports whether there is a newer view. The session adopts it when nothing is on its way: otherwise a command
// could overtake one that the old owner of its slot refuses.
func (n *Errands) Outdated() bool { return n.view != n.cluster.View() }

// Kept is the number of bytes of commands that may have to be sent again.
func (n *Errands) Kept() int { return n.kept }

// Owner is the server of a slot; Any: none is known.
func (n *Errands) Owner(slot int) topology.Node { return owner(n.view, slot) }

func owner(v *topology.View, slot int) topology.Node {
	if node := v.Owner(slot); node != nil {
		return topology.Node(node.ID)
	}
	return topology.Any
}

// Chance is one of the servers, if possible one that answers; Any: none is known.
func (n *Errands) Chance() topology.Node {
	list := n.cluster.View().Nodes()
	if len(list) == 0 {
		return topology.Any
	}
	first := rand.IntN(len(list))
	for i := range list {
		if at := topology.Node(list[(first+i)%len(list)].ID); !n.cluster.Silent(at) {
			return at
		}
	}
	return topology.Node(list[first].ID)
}

// writings are the writes of a session.
type writings struct {
	wrote []topology.Node // the servers that may have them
	moved bool            // slots have moved since
	lost  bool            // one of the servers has been replaced, perhaps without them
}

// adopt notes that one view has followed another.
func (w *writings) adopt(before, after *topology.View) {
	if len(w.wrote) == 0 {
		return
	}
	w.moved = true
	isNoPrimary := func(at topology.Node) bool { return after.Primary(string(at)) == nil }
	w.lost = w.lost || slices.ContainsFunc(w.wrote, isNoPrimary) && promotes(before, after)
}

// promotes reports whether a primary is new. As a rule it has been a replica; not every view knows the replicas.
func promotes(before, after *topology.View) bool {
	return slices.ContainsFunc(after.Nodes(), func(n topology.ClusterNode) bool { return before.Primary(n.ID) == nil })
}

// WritesLost reports whether a server to which the session had written has been replaced by a replica, which may not
// have the writes. The session begins anew: the loss is reported once.
func (w *writings) WritesLost() bool {
	lost := w.lost
	if lost {
		*w = writings{}
	}
	return lost
}

// Wrote notes that the command being routed is sent to a server.
func (n *Errands) Wrote(at topology.Node) {
	if n.writes {
		n.note(at)
	}
}

func (n *Errands) note(at topology.Node) {
	if at != topology.Any && !slices.Contains(n.wrote, at) {
		n.wrote = append(n.wrote, at)
	}
}

// WrittenTo are the servers that may have the writes of the session. If slots have moved, they are all servers.
func (n *Errands) WrittenTo() []topology.Node {
	if n.moved {
		n.moved, n.wrote = false, n.wrote[:0]
		for _, node := range n.view.Nodes() {
			n.wrote = append(n.wrote, topology.Node(node.ID))
		}
	}
	return slices.Clone(n.wrote)
}

// Adopt takes over the present view of the cluster. No errand is on its way. Lanes to servers that serve no slots any
// more are left.
func (n *Errands) Adopt() {
	if n.view == nil || n.view == n.cluster.View() {
		return
	}
	before := n.view
	n.view, n.servers = n.cluster.View(), nil
	n.adopt(before, n.view)
	n.session.Leave(func(at topology.Node) bool { return n.view.Primary(string(at)) == nil })
}

// Send sends the command being routed to its target. h handles its reply; nil: it passes to the client.
func (n *Errands) Send(raw []byte, h reply.Handler) {
	e := n.newErrand()
	e.h, e.subject, e.node, e.keys, e.writes = h, subject{n.Slot, n.key}, n.Target, n.keys, n.writes
	e.fixed, e.heirs = n.Fixed || n.Heirs, n.Heirs
	e.raw = append(e.raw, raw...)
	n.kept += len(raw)
	if _, waits := n.queues[e.subject]; waits {
		e.at = n.session.Take(e.node, e, len(raw))
		e.attempts.Refused(n.Wait())
	} else {
		e.at = n.session.Take(e.node, e, 0)
	}
	e.send()
}

// to returns the server of a node.
func (n *Errands) to(at topology.Node) *server {
	for _, s := range n.servers {
		if s.node == at {
			return s
		}
	}
	s := &server{node: at}
	n.servers = append(n.servers, s)
	return s
}

// Refused notes that a server has refused a command for another server's sake. It returns the server that has the key
// already; Any: none is known.
func (n *Errands) Refused(why topology.Refusal) (asking topology.Node) {
	n.cluster.Refused(why.Reason)
	hint := n.cluster.View().At(why.Address)
	switch {
	case hint == nil:
		return topology.Any
	case why.Reason == topology.Asking:
		return topology.Node(hint.ID)
	}
	n.cluster.Refresh(topology.Node(hint.ID), nil)
	return topology.Any
}

// Later has f called after a pause and a refresh of the view. f requires the session lock.
func (n *Errands) Later(hint topology.Node, pause time.Duration, f func()) {
	then := func() { n.session.Do(f) }
	if pause == 0 {
		n.cluster.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { n.cluster.Refresh(hint, then) })
}

// Wait is the time for which a refused command is sent again.
func (n *Errands) Wait() time.Duration { return n.cluster.FailoverWait() }

// Drop gives up what a session that has ended will not send again.
func (n *Errands) Drop() {
	for _, queue := range n.queues {
		for _, e := range queue {
			if e.state == sent || e.state == probing {
				continue
			}
			n.session.GiveUp(e.at)
			n.kept -= len(e.raw)
			if e.h != nil {
				e.h.Lost(e.at, 1, false)
			}
		}
	}
	n.queues, n.resting = nil, nil
}

func (n *Errands) newErrand() *Errand {
	if last := len(n.spare) - 1; last >= 0 {
		e := n.spare[last]
		n.spare = n.spare[:last]
		return e
	}
	return &Errand{of: n}
}

// maxSpare bounds the errands that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512
