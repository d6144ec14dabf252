package upstream

import (
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/admission"
	"github.com/lockproxy/lockproxy/internal/upstream/cluster"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/fleet"
	"github.com/lockproxy/lockproxy/internal/upstream/refresh"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// laneKey: an engine that moves bytes itself has lanes of its own.
type laneKey struct {
	target dial.Target
	driver Driver
}

// lanes are the sets of lanes of an Upstream, guarded by its mu. The sets of clients without credentials in database 0 are always
// there. All other sets have places, and unused ones are closed when there are many.
type lanes struct {
	known   map[laneKey]*laneSet
	retired map[*Lane]bool // in use, but not returned by Lane any more
	places  *admission.Places
	unused  *admission.Idle[laneKey, *laneSet] // of those with places
	paused  time.Time                          // writes are known to be held back until then
}

func newLanes(size int) lanes {
	return lanes{
		known: map[laneKey]*laneSet{}, retired: map[*Lane]bool{},
		places: admission.NewPlaces(size, admission.Share(size)), unused: admission.NewIdle[laneKey, *laneSet](),
	}
}

// A quarter of the sets may be unused, and one address may have opened a quarter of those: a client that moves from identity to
// identity leaves no more behind.
func (ls *lanes) mayRest() int      { return max(1, ls.places.Total()/4) }
func (ls *lanes) mayRestByOne() int { return max(1, ls.mayRest()/4) }

// place takes a place for owner. An unused set may be closed for it.
func (ls *lanes) place(owner string) bool {
	for {
		var set *laneSet
		var found bool
		switch ls.places.Take(owner) {
		case admission.Granted:
			return true
		case admission.OverShare:
			set, found = ls.unused.EvictOf(owner)
		default:
			set, found = ls.unused.Evict(owner)
		}
		if !found {
			return false
		}
		ls.remove(set)
		set.close()
	}
}

// all lists all lanes, those that serve no new sessions as well.
func (ls *lanes) all() []*Lane {
	var all []*Lane
	for _, set := range ls.known {
		for _, l := range set.lanes {
			if l != nil {
				all = append(all, l)
			}
		}
	}
	for l := range ls.retired {
		all = append(all, l)
	}
	return all
}

// mayGet reports whether place would find one.
func (ls *lanes) mayGet(owner string) bool {
	switch ls.places.Ask(owner) {
	case admission.Granted:
		return true
	case admission.OverShare:
		return ls.unused.CountOf(owner) > 0
	default:
		return ls.unused.Len() > 0
	}
}

// remove removes a set from those whose lanes Lane returns.
func (ls *lanes) remove(set *laneSet) {
	if ls.known[set.key] != set {
		return
	}
	delete(ls.known, set.key)
	if set.placed {
		set.placed = false
		ls.unused.Remove(set)
		ls.places.Return(set.owner)
	}
}

// rest notes that a set is unused.
func (ls *lanes) rest(set *laneSet) {
	if !set.placed {
		return
	}
	ls.unused.Add(set.key, set, set.owner)
	if ls.unused.CountOf(set.owner) > ls.mayRestByOne() {
		ls.evict(ls.unused.EvictOf(set.owner))
	}
	if ls.unused.Len() > ls.mayRest() {
		ls.evict(ls.unused.Evict(set.owner))
	}
}

func (ls *lanes) evict(set *laneSet, found bool) {
	if found {
		ls.remove(set)
		set.close()
	}
}

// Lane returns a lane of an identity to a server that driver moves, connecting it if need be on owner's account. Goroutines move the lanes
// of a nil driver, and all lanes over TLS. If all places are taken, the lane that is returned refuses everything (Full). Each
// call is paired with one of Leave.
func (u *Upstream) Lane(id Identity, at Node, driver Driver, owner string, r Role) *Lane {
	k := u.laneKey(id, at, driver)
	u.mu.Lock()
	defer u.mu.Unlock()
	set := u.lanes.known[k]
	if set == nil {
		placed := false
		if !u.opts.free(id) && !u.closed {
			placed = u.lanes.place(owner)
		}
		if full := !placed && !u.opts.free(id); u.closed || full {
			l := newLane(laneKey{target: k.target}, nil, 0)
			l.full = full && !u.closed
			l.stream.Refuse(stream.ErrDown)
			l.users = 1
			return l
		}
		set = newLaneSet(u, k, owner, placed)
		u.lanes.known[k] = set
	}
	l := set.pick(r)
	set.join(l)
	return l
}

func (u *Upstream) laneKey(id Identity, at Node, driver Driver) laneKey {
	if u.opts.TLS != nil {
		driver = nil
	}
	return laneKey{dial.Target{At: at, ID: id}, driver}
}

// HasPlace reports whether there is a lane of an identity, or a place for one on owner's account.
func (u *Upstream) HasPlace(id Identity, at Node, driver Driver, owner string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.opts.free(id) || u.lanes.known[u.laneKey(id, at, driver)] != nil || u.lanes.mayGet(owner)
}

// Join returns the lane for reads of an identity if it is connected, else nil. Each call that returns one is paired with one of
// Leave.
func (u *Upstream) Join(id Identity, at Node, driver Driver) *Lane {
	u.mu.Lock()
	defer u.mu.Unlock()
	set := u.lanes.known[u.laneKey(id, at, driver)]
	if set == nil {
		return nil
	}
	l := set.pick(Reads)
	if !l.stream.IsUp() {
		return nil
	}
	set.join(l)
	return l
}

// Move returns the lane that a user of l uses next. It may be l itself. No command of the caller may be outstanding on l.
func (u *Upstream) Move(l *Lane, r Role) *Lane {
	u.mu.Lock()
	defer u.mu.Unlock()
	set := l.set
	if set == nil || u.closed || u.lanes.known[set.key] != set || set.lanes[l.number] != l {
		return l
	}
	next := set.pick(r)
	if next != l {
		set.join(next)
		u.leave(l)
	}
	return next
}

// forget removes a useless lane from those that Lane returns.
func (u *Upstream) forget(l *Lane) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if set := l.set; set.lanes[l.number] == l {
		set.drop(l.number)
		if set.empty() {
			u.lanes.remove(set)
		}
	}
	u.Disprove(l.target.ID.User, l.target.ID.Password)
}

// Leave says that a caller of Lane does not use it any more. No command of the caller may be outstanding on it.
func (u *Upstream) Leave(l *Lane) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.leave(l)
}

func (u *Upstream) leave(l *Lane) {
	set := l.set
	if set != nil {
		set.users--
	}
	if l.users--; l.users == 0 {
		l.unused = time.Now()
		if u.lanes.retired[l] {
			delete(u.lanes.retired, l)
			l.close()
		}
	}
	if set != nil && set.users == 0 && u.lanes.known[set.key] == set {
		u.lanes.rest(set)
	}
}

// retireOpen lets lanes without credentials serve the sessions that have them, and no new ones: Redis demands credentials from new
// connections now, and leaves open ones alone.
func (u *Upstream) retireOpen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, set := range u.lanes.known {
		if key.target.ID.Authenticated() {
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
		}
	}
}

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
