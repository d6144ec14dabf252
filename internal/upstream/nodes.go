package upstream

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// nodes is the view of a cluster. In front of one server it is empty.
type nodes struct {
	cluster *topology.Cluster
	views   *viewRefresher
	wait    time.Duration
	refused [topology.RefusalReasons]atomic.Int64
}

// FailoverWait is how long a command waits for a server that cannot be reached, or moves.
func (n *nodes) FailoverWait() time.Duration { return n.wait }

// View is the cluster as it is known at present; nil: there is one server.
func (n *nodes) View() *topology.View {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.View()
}

// Watch has f called from another goroutine whenever the view has changed, until stop is called. f may still be running
// then. It is for clusters only.
func (n *nodes) Watch(f func()) (stop func()) { return n.cluster.Watch(f) }

// Refresh has then called from another goroutine when the view has been refreshed, by a question that has begun after
// this call. hint is a server that should know of a change; Any: none. It is for clusters only.
func (n *nodes) Refresh(hint Node, then func()) { n.views.Ask(hint, then) }

// refreshViews prepares for following a cluster, if the servers are one.
func (n *nodes) refreshViews(u *Upstream, servers dial.Resolver) {
	n.wait = u.opts.FailoverWait
	c, ok := servers.(*topology.Cluster)
	if !ok {
		return
	}
	n.cluster = c
	n.views = newViewRefresher(viewRefresherOptions{
		Dialer: u.dialer, Cluster: c, Own: u.Own(), Logger: u.opts.Logger, Changed: func() {
			u.viewChanged()
			n.cluster.Tell()
		}, Outcome: u.contacts.Note,
	})
}

// Refused notes that a server has refused a command for another server's sake.
func (n *nodes) Refused(why topology.RefusalReason) { n.refused[why].Add(1) }

// Redirections are the numbers of commands that a server of a cluster has refused for another server's sake, by reason,
// since the start.
func (n *nodes) Redirections() map[string]int64 {
	all := map[string]int64{}
	for _, why := range []topology.RefusalReason{topology.Moved, topology.Asking, topology.TryLate} {
		all[why.String()] = n.refused[why].Load()
	}
	return all
}

// Refreshes are the numbers of questions about the servers of a cluster, and of the views that were new, since the
// start.
func (n *nodes) Refreshes() (asked, changed int64) {
	if n.views == nil {
		return 0, 0
	}
	return n.views.Counts()
}

// Silent reports whether a server of a cluster has not answered lately. Any other server is better where any will do.
func (n *nodes) Silent(at Node) bool { return n.cluster.Silent(at) }

// drainLimit is the time that a server without slots has to answer the requests that it got, if it is down: a server
// that was stopped delays its clients by no more. One that is alive has as long as a command waits for a server that
// moves.
const drainLimit = 150 * time.Millisecond

// viewChanged gives up the connections to servers that serve no slots any more. Commands that they have not answered in
// time are lost: a server that has been stopped would answer never, and keep its clients. One that serves slots again
// by then keeps its connections.
func (u *Upstream) viewChanged() {
	v := u.View()
	gone := func(at Node) bool { return at != topology.Any && v.Primary(string(at)) == nil }
	left := map[Node]bool{}
	for _, at := range append(u.Lanes.DropAt(gone), u.Pins.DropAt(gone)...) {
		left[at] = true
	}
	for at := range left {
		limit := drainLimit
		if v.Lives(string(at)) {
			limit = max(limit, u.wait)
		}
		time.AfterFunc(limit, func() { u.drained(at) })
	}
}

// drained ends the connections to a server whose time is over, unless it is back.
func (u *Upstream) drained(at Node) {
	if v := u.View(); v.Primary(string(at)) == nil {
		u.Lanes.EndAt(at)
		u.Pins.EndAt(at, v.Lives(string(at)))
	}
}

// laneLost notes that a lane has lost its connection.
func (n *nodes) laneLost(t dial.Target) {
	if n.views != nil {
		n.views.Ask(t.At, nil)
	}
}

// slow has the view of a cluster refreshed, because a primary takes long to accept a connection: it may have been
// stopped, and no server announces that.
func (n *nodes) slow(at Node) {
	if v := n.View(); v != nil && v.Primary(string(at)) != nil {
		n.laneStuck(at)
	}
}

// laneStuck has the view refreshed while a lane stands still.
func (n *nodes) laneStuck(at Node) {
	if n.views != nil {
		n.cluster.Suspect(at)
		n.views.Ask(at, nil)
	}
}
