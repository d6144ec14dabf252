package upstream

import (
	"time"

	"lockproxy/internal/upstream/cluster"
	"lockproxy/internal/upstream/topology"
)

// View is the cluster as it is known at present; nil: there is one server.
func (u *Upstream) View() *cluster.View {
	if u.cluster == nil {
		return nil
	}
	return u.cluster.View()
}

// Refresh has then called from another goroutine when the view has been refreshed, after a question that has begun after this call. hint is a server
// that should know what has changed; topology.Any: none. It is for clusters only.
func (u *Upstream) Refresh(hint topology.Node, then func()) { u.views.Ask(hint, then) }

// grace is the time in which a server that serves no slots any more may still answer what it has been sent.
const grace = time.Second

// viewChanged gives up the connections to servers that serve no slots any more. Commands that they have not answered within grace are lost: a
// server that has been stopped would answer never, and keep its clients.
func (u *Upstream) viewChanged(v *cluster.View) {
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
func (u *Upstream) laneFailed(l *Lane, err error) {
	if u.views != nil {
		u.views.Ask(topology.Any, nil)
		return
	}
	if u.inUse(l) {
		u.contact(err)
	}
}

// stuckPeriod is the time between two refreshes of the view while a lane stands still: the server may have been stopped, which nothing announces.
const stuckPeriod = 250 * time.Millisecond

// laneStuck has the view refreshed while a lane of a set stands still. Requires u.mu.
func (u *Upstream) laneStuck(set *laneSet) {
	if now := time.Now(); u.views != nil && set.lineup.Aside() && now.Sub(set.asked) > stuckPeriod {
		set.asked = now
		u.views.Ask(set.key.target.At, nil)
	}
}
