// Package lanes gives sessions the lanes of their identities: it opens, shares and closes them. A selection
// decides which of an identity's lanes takes which commands.
//
// # Goroutines
//
// Lane.Run, one for each lane. A timer looks at the lanes that have outstanding commands.
package lanes

import (
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/upstream/dial"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// Options of Lanes. All but TLS are required.
type Options struct {
	// Size is the number of places: sets of lanes with credentials or another database than 0.
	Size int

	Dialer *dial.Dialer
	TLS    bool // connections are TLS, which no driver moves

	// Own reports whether credentials are the proxy's own. Free reports whether the lanes of an identity need no place.
	Own, Free func(dial.Identity) bool

	Logger  *zap.Logger
	Entries *logging.Repeats // the log for entries that each lane may repeat
	Spawn   func(func())     // runs a goroutine and waits for its end

	Events Events
}

// Events tell about connections. All but Stuck are called from the goroutine of a lane. None of them blocks. Requires
// no locks.
type Events struct {
	Connected func(t dial.Target, owner string, again bool) // owner: the lane's account; again: it had a connection before
	Failed    func(t dial.Target, err error, inUse bool)    // an attempt to connect has failed
	Lost      func(t dial.Target)                           // a connection has ended by itself
	Stuck     func(at topology.Node)                        // a lane stands still; called now and then. Requires Lanes.mu
}

// A key says which lanes are one set. A driver has lanes of its own.
type key struct {
	target dial.Target
	driver stream.Driver
}

// Lanes are all lanes of a proxy. All methods may be called from any goroutine.
type Lanes struct {
	opts  Options      // immutable
	aside atomic.Int64 // lanes set aside since the start
	lost  atomic.Int64 // connections of lanes since the start

	mu     sync.Mutex
	sets   map[key]*set       // of the lanes that Lane returns
	lanes  map[*Lane]struct{} // all that are open, or that sessions have
	places places             // of the sets
	paused time.Time          // writes are known to be held back until then
	closed bool
}

// New returns Lanes without a lane.
func New(o Options) *Lanes {
	return &Lanes{
		opts: o, sets: map[key]*set{}, lanes: map[*Lane]struct{}{},
		places: newPlaces(o.Size),
	}
}

// Lane returns a lane of an identity to a server that driver moves, connecting it if need be on owner's account.
// Goroutines move the lanes of a nil driver, and all lanes over TLS. If all places are taken, the lane that is returned
// refuses everything (Full). Each call is paired with one of Leave.
func (ls *Lanes) Lane(id dial.Identity, at topology.Node, driver stream.Driver, owner string, r Role) *Lane {
	k := ls.key(id, at, driver)
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.sets[k]
	if s == nil {
		if ls.closed {
			return refusingLane(k.target, false)
		}
		placed := false
		if !ls.opts.Free(id) {
			var evicted []*set
			evicted, placed = ls.places.take(owner)
			if ls.evictLocked(evicted); !placed {
				return refusingLane(k.target, true)
			}
		}
		s = newSet(ls, k, owner, placed)
		ls.sets[k] = s
	}
	l := s.pick(r)
	s.join(l)
	return l
}

func (ls *Lanes) key(id dial.Identity, at topology.Node, driver stream.Driver) key {
	if ls.opts.TLS {
		driver = nil
	}
	return key{dial.Target{At: at, ID: id}, driver}
}

// HasPlace reports whether there is a lane of an identity, or a place for one on owner's account.
func (ls *Lanes) HasPlace(id dial.Identity, at topology.Node, driver stream.Driver, owner string) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return ls.opts.Free(id) || ls.sets[ls.key(id, at, driver)] != nil || ls.places.mayTake(owner)
}

// Join returns the lane for reads of an identity if it is connected, else nil. Each call that returns one is paired
// with one of Leave.
func (ls *Lanes) Join(id dial.Identity, at topology.Node, driver stream.Driver) *Lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := ls.sets[ls.key(id, at, driver)]
	if s == nil {
		return nil
	}
	l := s.pick(Reads)
	if !l.IsUp() {
		return nil
	}
	s.join(l)
	return l
}

// Move returns the lane that a user of l uses next. It may be l itself. No command of the caller may be outstanding on
// l.
func (ls *Lanes) Move(l *Lane, r Role) *Lane {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	s := l.set
	if s == nil || ls.closed || ls.sets[s.key] != s || l.isDropped() {
		return l
	}
	next := s.pick(r)
	if next != l {
		s.join(next)
		ls.leaveLocked(l)
	}
	return next
}

// Leave says that a caller of Lane does not use it any more. No command of the caller may be outstanding on it.
func (ls *Lanes) Leave(l *Lane) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if l.set != nil { // else it refuses everything
		ls.leaveLocked(l)
	}
}

func (ls *Lanes) leaveLocked(l *Lane) {
	s := l.set
	s.users--
	if l.users--; l.users == 0 {
		l.unused = time.Now()
		if l.isDropped() {
			ls.closeLocked(l)
		}
	}
	if s.users == 0 && ls.sets[s.key] == s {
		ls.evictLocked(ls.places.rest(s))
	}
}

// evictLocked closes unused sets that have lost their places.
func (ls *Lanes) evictLocked(sets []*set) {
	for _, s := range sets {
		delete(ls.sets, s.key)
		s.looks.Stop()
		s.dropAll()
	}
}

// removeLocked removes a set from those whose lanes Lane returns.
func (ls *Lanes) removeLocked(s *set) {
	if ls.sets[s.key] == s {
		delete(ls.sets, s.key)
		ls.places.free(s)
	}
}

// closeLocked ends a lane without users.
func (ls *Lanes) closeLocked(l *Lane) {
	delete(ls.lanes, l)
	l.Close()
}

// DropBare gives the present lanes without credentials to no further session. Each ends when its last session has left.
func (ls *Lanes) DropBare() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for k, s := range ls.sets {
		if !k.target.ID.Authenticated() {
			ls.removeLocked(s)
			s.dropAll()
		}
	}
}

// DropAt closes the unused lanes that lead to servers that are gone, and returns those of these servers to which others
// lead. No further session gets one of these.
func (ls *Lanes) DropAt(gone func(at topology.Node) bool) (used []topology.Node) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for k, s := range ls.sets {
		if gone(k.target.At) {
			ls.removeLocked(s)
			s.dropAll()
		}
	}
	for l := range ls.lanes { // also those that were dropped before their server came back
		if at := l.At(); gone(at) {
			used = append(used, at)
		}
	}
	return used
}

// EndAt closes all lanes that lead to a server.
func (ls *Lanes) EndAt(node topology.Node) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for l := range ls.lanes {
		if l.At() == node {
			l.Close()
		}
	}
}

// Paused says that Redis holds back the writes of all clients until then; a time that is over says that it does not.
func (ls *Lanes) Paused(until time.Time) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.paused = until
	for _, s := range ls.sets {
		s.pause()
	}
}

// Trim closes lanes that no session has used since t, but for one spare lane of each set in use. It returns the targets
// in use.
func (ls *Lanes) Trim(t time.Time) (inUse map[dial.Target]bool) {
	inUse = map[dial.Target]bool{}
	ls.mu.Lock()
	defer ls.mu.Unlock()
	for k, s := range ls.sets {
		if s.users > 0 {
			inUse[k.target] = true
		}
		if s.trim(t); s.users == 0 && s.isEmpty() {
			ls.removeLocked(s)
		}
	}
	return inUse
}

// Close ends all lanes. New ones refuse everything.
func (ls *Lanes) Close() {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	ls.closed = true
	for _, s := range ls.sets {
		s.looks.Stop()
	}
	for l := range ls.lanes {
		l.Close()
	}
}

// Status describes one lane for people.
type Status struct {
	Identity dial.Identity
	At       topology.Node // the server, in a cluster
	Use      string        // "all" commands, "reads", "writes", "scripts", "large replies"; or "set aside", "spare"
	Up       bool          // it is connected
	Users    int           // sessions
	Commands int64         // without an answer
	Bytes    int64         // of commands that have not been written
}

// List describes the lanes that serve new sessions, in no order.
func (ls *Lanes) List() []Status {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	list := make([]Status, 0, len(ls.sets))
	for _, s := range ls.sets {
		for i, l := range s.lanes {
			if l != nil {
				appended, written := l.Progress()
				list = append(list, Status{
					Identity: s.key.target.ID, At: s.key.target.At, Use: s.selection.Use(i), Up: l.IsUp(), Users: l.users,
					Commands: l.Outstanding(), Bytes: appended - written,
				})
			}
		}
	}
	return list
}

// HeldBack estimates the number of clients that wait because Redis holds back writes, beyond those that Redis counts as
// blocked. Redis counts a lane once.
func (ls *Lanes) HeldBack() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if !time.Now().Before(ls.paused) {
		return 0
	}
	n := 0
	for _, s := range ls.sets {
		for i, l := range s.lanes {
			if l != nil && s.selection.MayBeHeld(i) {
				asked, settled, _ := l.Moved()
				n += max(0, min(int(asked-settled), l.users)-1)
			}
		}
	}
	return n
}

// Counts are the numbers of lanes that were set aside, and of connections that lanes have lost, since the start.
func (ls *Lanes) Counts() (aside, lost int64) { return ls.aside.Load(), ls.lost.Load() }
