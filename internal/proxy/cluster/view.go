package cluster

import (
	"math/rand/v2"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Pauses reports whether refused parcels are not answered.
func (c *Route) Pauses() bool { return c.pause != nil }

// Outdated reports whether there is a newer view. It is adopted when nothing is on its way: otherwise a command could
// overtake one that the old owner of its slot refuses.
func (c *Route) Outdated() bool { return c.View != c.Servers.View() }

// Adopt takes over the present view of the cluster. No parcel is on its way. Lanes to servers that serve no slots any
// more are left.
func (c *Route) Adopt() {
	if !c.Outdated() {
		return
	}
	c.View = c.Servers.View()
	c.leaveLanes(func(at topology.Node) bool { return c.View.Primary(string(at)) == nil })
}

// OwnerOf is the server of a slot; Any: none is known.
func (c *Route) OwnerOf(slot int) topology.Node { return OwnerIn(c.View, slot) }

// OwnerIn is the server of a slot in a view; Any: none is known.
func OwnerIn(v *topology.View, slot int) topology.Node {
	if node := v.Owner(slot); node != nil {
		return topology.Node(node.ID)
	}
	return topology.Any
}

// AnyServer is one of the servers, if possible one that answers; Any: none is known.
func (c *Route) AnyServer() topology.Node {
	list := c.Servers.View().Nodes()
	if len(list) == 0 {
		return topology.Any
	}
	first := rand.IntN(len(list))
	for i := range list {
		if at := topology.Node(list[(first+i)%len(list)].ID); !c.Servers.Silent(at) {
			return at
		}
	}
	return topology.Node(list[first].ID)
}

// NoteRefusal notes that a server has refused a command for another server's sake. It returns the server that has the
// key already; Any: none is known.
func (c *Route) NoteRefusal(why topology.Refusal, asked topology.Node) (asking topology.Node) {
	c.Servers.Refused(why.Reason)
	hint := c.Servers.View().Named(why, asked)
	switch {
	case hint == nil:
		return topology.Any
	case why.Reason == topology.Asking:
		return topology.Node(hint.ID)
	}
	c.Servers.Refresh(topology.Node(hint.ID), nil)
	return topology.Any
}

// Later has f called, with the session locked, after a pause and a refresh of the view.
func (c *Route) Later(hint topology.Node, pause time.Duration, f func()) {
	then := func() { c.Host.Do(f) }
	if pause == 0 {
		c.Servers.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { c.Servers.Refresh(hint, then) })
}
