package upstream

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/admission"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
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

// Paused says that Redis holds back the writes of all clients until then; a time that is over says that it does not.
func (u *Upstream) Paused(until time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lanes.paused = until
	for _, set := range u.lanes.known {
		set.pause()
	}
}

// HeldBack estimates the number of clients that wait because Redis holds back writes, beyond those that Redis counts as blocked. Redis counts a
// lane once.
func (u *Upstream) HeldBack() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	if !time.Now().Before(u.lanes.paused) {
		return 0
	}
	n := 0
	for _, set := range u.lanes.known {
		for i, l := range set.lanes {
			if l == nil || !set.lineup.MayBeHeld(i) {
				continue
			}
			asked, settled, _ := l.stream.Moved()
			n += max(0, min(int(asked-settled), l.users)-1)
		}
	}
	return n
}

// LaneEvents are the numbers of lanes that were set aside, and of connections that lanes have lost, since the start.
func (u *Upstream) LaneEvents() (aside, lost int64) { return u.aside.Load(), u.lost.Load() }

// LaneStatus describes one lane for people.
type LaneStatus struct {
	Identity Identity
	At       Node   // the server, in a cluster
	Use      string // what it is for: "all" commands, "reads", "writes", "scripts", "large replies"; or "set aside", "spare"
	Up       bool   // it is connected
	Users    int    // sessions
	Commands int64  // without an answer
	Bytes    int64  // of commands that have not been written
}

// Lanes lists the lanes, in no order.
func (u *Upstream) Lanes() []LaneStatus {
	u.mu.Lock()
	defer u.mu.Unlock()
	list := make([]LaneStatus, 0, len(u.lanes.known))
	for _, set := range u.lanes.known {
		for _, l := range set.lanes {
			if l != nil {
				list = append(list, l.status())
			}
		}
	}
	return list
}
