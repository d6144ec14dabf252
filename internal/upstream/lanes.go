package upstream

import (
	"time"

	"lockproxy/internal/upstream/admission"
)

// laneKey: an engine that moves bytes itself has lanes of its own.
type laneKey struct {
	id     Identity
	driver Driver
}

// lanes are the lanes of an Upstream, guarded by its mu. The lanes of clients that have said nothing of themselves are always
// there; all others have places, and unused ones go when there are many.
type lanes struct {
	known   map[laneKey]*Lane
	retired map[*Lane]bool // in use, but not given out any more
	places  *admission.Places
	unused  *admission.Idle[laneKey, *Lane] // of those with places
}

func newLanes(size int) lanes {
	return lanes{
		known: map[laneKey]*Lane{}, retired: map[*Lane]bool{},
		places: admission.NewPlaces(size, admission.Share(size)), unused: admission.NewIdle[laneKey, *Lane](),
	}
}

// Of the lanes a quarter may be unused, and of these a quarter may have been opened by one address: who moves from identity to
// identity leaves no more behind.
func (ls *lanes) mayRest() int      { return max(1, ls.places.Total()/4) }
func (ls *lanes) mayRestByOne() int { return max(1, ls.mayRest()/4) }

// room takes a place for owner, for which an unused lane may have to go.
func (ls *lanes) room(owner string) bool {
	for {
		var l *Lane
		var found bool
		switch ls.places.Take(owner) {
		case admission.Granted:
			return true
		case admission.OverShare:
			l, found = ls.unused.EvictOf(owner)
		default:
			l, found = ls.unused.Evict(owner)
		}
		if !found {
			return false
		}
		ls.remove(l)
		l.close()
	}
}

// mayGet reports whether room would find a place.
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

// remove takes a lane out of those that are given out.
func (ls *lanes) remove(l *Lane) {
	if ls.known[l.key] != l {
		return
	}
	delete(ls.known, l.key)
	if l.placed {
		l.placed = false
		ls.unused.Remove(l)
		ls.places.Return(l.owner)
	}
}

// rest notes that a lane is not used any more.
func (ls *lanes) rest(l *Lane) {
	if !l.placed {
		return
	}
	ls.unused.Add(l.key, l, l.owner)
	if ls.unused.CountOf(l.owner) > ls.mayRestByOne() {
		ls.evict(ls.unused.EvictOf(l.owner))
	}
	if ls.unused.Len() > ls.mayRest() {
		ls.evict(ls.unused.Evict(l.owner))
	}
}

func (ls *lanes) evict(l *Lane, found bool) {
	if found {
		ls.remove(l)
		l.close()
	}
}

// Lane returns the lane of an identity that driver moves, connecting it if need be on owner's account. Goroutines move the lanes
// of a nil driver, and all lanes over TLS. If all places are taken, the lane that is returned refuses everything (NoRoom). Each
// call is paired with one of Leave.
func (u *Upstream) Lane(id Identity, driver Driver, owner string) *Lane {
	key := u.laneKey(id, driver)
	u.mu.Lock()
	defer u.mu.Unlock()
	if l := u.lanes.known[key]; l != nil {
		u.useLocked(l)
		return l
	}
	l := &Lane{id: id, key: key, owner: owner, stream: newStream(), stop: make(chan struct{}), contact: make(chan struct{}, 1), users: 1}
	if free := u.free(id); !free && !u.closed {
		l.placed = u.lanes.room(owner)
		l.noRoom = !l.placed
	}
	if u.closed || l.noRoom {
		l.stream.state = down
		return l
	}
	if key.driver != nil {
		l.mover = key.driver.Attach(&Wire{l.stream})
		l.stream.bell = l.mover.Ring
	}
	u.lanes.known[key] = l
	u.wg.Go(func() { l.run(u) })
	return l
}

// free reports whether the lane of an identity needs no place, because it is what a client has that says nothing of itself.
func (u *Upstream) free(id Identity) bool {
	return id.DB == 0 && (!id.Authenticated() || u.own(id))
}

func (u *Upstream) laneKey(id Identity, driver Driver) laneKey {
	if u.opts.TLS != nil {
		driver = nil
	}
	return laneKey{id, driver}
}

func (u *Upstream) useLocked(l *Lane) {
	if l.users == 0 {
		u.lanes.unused.Remove(l)
	}
	l.users++
}

// RoomFor reports whether there is a lane of an identity, or a place for one on owner's account.
func (u *Upstream) RoomFor(id Identity, driver Driver, owner string) bool {
	u.mu.Lock()
	defer u.mu.Unlock()
	return u.free(id) || u.lanes.known[u.laneKey(id, driver)] != nil || u.lanes.mayGet(owner)
}

// Join returns the lane of an identity if it is connected, else nil. Each call that returns one is paired with one of Leave.
func (u *Upstream) Join(id Identity, driver Driver) *Lane {
	u.mu.Lock()
	defer u.mu.Unlock()
	l := u.lanes.known[u.laneKey(id, driver)]
	if l == nil || !l.stream.isUp() {
		return nil
	}
	u.useLocked(l)
	return l
}

// forget takes a lane that is of no use out of what Lane returns.
func (u *Upstream) forget(l *Lane) {
	u.mu.Lock()
	defer u.mu.Unlock()
	u.lanes.remove(l)
	if u.proven[l.id.User] == l.id.Password {
		delete(u.proven, l.id.User)
	}
}

// Leave says that a caller of Lane has no further use for it. Nothing of the caller may be outstanding on it.
func (u *Upstream) Leave(l *Lane) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if l.users--; l.users > 0 {
		return
	}
	l.unused = time.Now()
	if u.lanes.retired[l] {
		delete(u.lanes.retired, l)
		l.close()
		return
	}
	u.lanes.rest(l)
}

// retireOpen lets lanes without credentials serve those who have them, and nobody else: Redis demands credentials from new
// connections now, and leaves open ones alone.
func (u *Upstream) retireOpen() {
	u.mu.Lock()
	defer u.mu.Unlock()
	for key, l := range u.lanes.known {
		if key.id.Authenticated() {
			continue
		}
		u.lanes.remove(l)
		if l.users == 0 {
			l.close()
			continue
		}
		u.lanes.retired[l] = true
	}
}

// maxProven bounds what is remembered of users. Redis has fewer, as a rule; forgetting one costs a lane.
const maxProven = 4096

// Proven returns a password of a user that Redis has accepted before, if there is one.
func (u *Upstream) Proven(user string) (password string, ok bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	password, ok = u.proven[user]
	return password, ok
}

// Prove notes that Redis has accepted a user's password just now.
func (u *Upstream) Prove(user, password string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.proven) >= maxProven {
		u.proven = nil
	}
	if u.proven == nil {
		u.proven = map[string]string{}
	}
	u.proven[user] = password
}
