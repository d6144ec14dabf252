package upstream

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/cluster"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/fleet"
	"github.com/lockproxy/lockproxy/internal/upstream/refresh"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// nodes is the view of a cluster. In front of one server it is empty.
type nodes struct {
	cluster *topology.Cluster
	views   *refresh.Refresher
	fleet   *fleet.Fleet
	wait    time.Duration
	refused [cluster.Reasons]atomic.Int64
}

// FailoverWait is how long a command waits for a server that moves.
func (n *nodes) FailoverWait() time.Duration { return n.wait }

// View is the cluster as it is known at present; nil: there is one server.
func (n *nodes) View() *cluster.View {
	if n.cluster == nil {
		return nil
	}
	return n.cluster.View()
}

// Watch has f called from another goroutine whenever the view has changed, until stop is called. f may still be running then. It is for clusters only.
func (n *nodes) Watch(f func()) (stop func()) { return n.cluster.Watch(f) }

// Fleet is the servers, for a client library that finds the server of each key itself; nil: there is one server.
func (n *nodes) Fleet() *fleet.Fleet { return n.fleet }

// Refresh has then called from another goroutine when the view has been refreshed, by a question that has begun after this call. hint is a server
// that should know of a change; AnyNode: none. It is for clusters only.
func (n *nodes) Refresh(hint Node, then func()) { n.views.Ask(hint, then) }

// refreshViews prepares for following a cluster, if the servers are one.
func (n *nodes) refreshViews(u *Upstream, servers dial.Resolver) {
	c, ok := servers.(*topology.Cluster)
	if !ok {
		return
	}
	n.cluster, n.wait = c, u.opts.FailoverWait
	n.views = refresh.New(refresh.Options{
		Dialer: u.dialer, Cluster: c, Own: u.Own(), Logger: u.opts.Logger, Changed: func(v *cluster.View) {
			n.viewChanged(u, v)
			n.cluster.Tell()
		}, Outcome: u.contacts.Note,
	})
	n.fleet = &fleet.Fleet{Cluster: c, Views: n.views, Dialer: u.dialer, Commands: u.Commands}
}

// Refused notes that a server has refused a command for another server's sake.
func (n *nodes) Refused(why cluster.Reason) { n.refused[why].Add(1) }

// Redirections are the numbers of commands that a server of a cluster has refused for another server's sake, by reason, since the start.
func (n *nodes) Redirections() map[string]int64 {
	all := map[string]int64{}
	for _, why := range []cluster.Reason{cluster.Moved, cluster.Asking, cluster.TryLate} {
		all[why.String()] = n.refused[why].Load()
	}
	return all
}

// Refreshes are the numbers of questions about the servers of a cluster, and of the views that were new, since the start.
func (n *nodes) Refreshes() (asked, changed int64) {
	if n.views == nil {
		return 0, 0
	}
	return n.views.Counts()
}

// Silent reports whether a server of a cluster has not answered lately. Any other server is better where any will do.
func (n *nodes) Silent(at Node) bool { return n.cluster.Silent(at) }

// patience is the wait for one server's answer to a question that any server can answer. 0: there is one server.
func (n *nodes) patience() time.Duration {
	if n.cluster == nil {
		return 0
	}
	return 100 * time.Millisecond
}

// grace is the time that a server without slots has to answer the requests that it got. A server that was demoted answers at once, and a
// server that was stopped delays its clients by no more.
const grace = 150 * time.Millisecond

// viewChanged gives up the connections to servers that serve no slots any more. Commands that they have not answered within grace are lost: a
// server that has been stopped would answer never, and keep its clients.
func (n *nodes) viewChanged(u *Upstream, v *cluster.View) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, set := range u.lanes.known {
		if at := key.target.At; at == topology.Any || v.Primary(string(at)) != nil {
			continue
		}
		u.lanes.remove(set)
		for i, l := range set.lanes {
			if l == nil {
				continue
			}
			set.drop(i)
			if l.users == 0 {
				l.close()
				continue
			}
			u.lanes.retired[l] = true
			time.AfterFunc(grace, l.close)
		}
	}
	u.pins.DropAt(func(at topology.Node) bool { return at != topology.Any && v.Primary(string(at)) == nil }, grace)
}

// laneFailed notes that a lane has no connection. In a cluster one server says nothing of the others.
func (l *Lane) laneFailed(u *Upstream, err error) {
	if u.views != nil {
		u.views.Ask(topology.Any, nil)
		return
	}
	if l.inUse(u) && !u.looks(err) {
		u.contacts.Note(err)
	}
}

// laneLost notes that a lane has lost its connection.
func (n *nodes) laneLost(l *Lane) {
	if n.views != nil {
		n.views.Ask(l.target.At, nil)
	}
}

// stuckPeriod is the time between two refreshes of the view while a lane stands still: the server may have been stopped, which nothing announces.
const stuckPeriod = 100 * time.Millisecond

// laneStuck has the view refreshed while a lane of a set stands still. Requires Upstream.mu.
func (n *nodes) laneStuck(set *laneSet) {
	if now := time.Now(); n.views != nil && set.lineup.Aside() && now.Sub(set.asked) > stuckPeriod {
		set.asked = now
		n.cluster.Suspect(set.key.target.At)
		n.views.Ask(set.key.target.At, nil)
	}
}
