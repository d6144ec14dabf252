package upstream

import (
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/lineup"
)

// Role is the use that a session has for a lane.
type Role = lineup.Role

// The roles of lanes.
const (
	Reads   = lineup.Reads   // commands that change no data
	Writes  = lineup.Writes  // commands that may change data
	Scripts = lineup.Scripts // scripts of clients
	Large   = lineup.Large   // commands of a session whose replies are large
)

// laneSet is the lanes of one identity that one driver moves. It is guarded by Upstream.mu.
type laneSet struct {
	u      *Upstream
	key    laneKey
	lineup lineup.Lineup
	lanes  [lineup.Max]*Lane // nil: not open
	users  int               // of all of them
	owner  string            // the account on which it was opened
	placed bool              // it has one of the places
	asked  time.Time         // see laneStuck
	looks  *time.Timer       // runs look; armed while commands are outstanding
}

// lookEvery is the period in which lanes with outstanding commands are checked.
const lookEvery = 5 * time.Millisecond

func newLaneSet(u *Upstream, key laneKey, owner string, placed bool) *laneSet {
	set := &laneSet{u: u, key: key, owner: owner, placed: placed}
	set.looks = time.AfterFunc(time.Hour, set.look)
	set.looks.Stop()
	set.pause()
	return set
}

func (set *laneSet) pause() {
	set.lineup.Pause(set.u.lanes.paused, time.Now())
	set.tell()
	if set.lineup.Divided() {
		set.looks.Reset(lookEvery)
	}
}

// pick returns the lane for a role.
func (set *laneSet) pick(r Role) *Lane {
	i, open := set.lineup.Pick(r)
	if open {
		set.open(i)
	}
	set.tell()
	return set.lanes[i]
}

// openSpare connects one lane ahead of need. When a lane stands still, it may be too late: a Redis that is busy with a script refuses
// SELECT.
func (set *laneSet) openSpare() {
	if i, open := set.lineup.Spare(); open {
		set.open(i)
		set.tell()
	}
}

func (set *laneSet) open(i int) {
	l := newLane(set.key, set, i)
	set.lanes[i] = l
	set.u.wg.Go(func() { l.run(set.u) })
}

func (set *laneSet) join(l *Lane) {
	if set.users == 0 {
		set.u.lanes.unused.Remove(set)
	}
	l.users++
	if set.users++; set.users > 1 {
		set.openSpare()
	}
}

// drop forgets a lane. Its users stay on it.
func (set *laneSet) drop(i int) {
	set.lanes[i].unsettled.Store(false)
	set.lanes[i] = nil
	set.lineup.Close(i)
}

// tell tells the users of each lane whether they must Move.
func (set *laneSet) tell() {
	for i, l := range set.lanes {
		if l != nil {
			l.unsettled.Store(!set.lineup.Settled(i))
		}
	}
}

// watch looks at the lanes while commands are outstanding. Requires no locks.
func (set *laneSet) watch() { set.looks.Reset(lookEvery) }

// look sets aside lanes that stand still.
func (set *laneSet) look() {
	u := set.u
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.closed {
		return
	}
	busy := false
	aside := set.lineup.Look(time.Now(), func(i int) (asked, settled uint64) {
		asked, settled, connected := set.lanes[i].stream.Moved()
		busy = busy || asked != settled
		if !connected { // another lane could not connect either
			return settled, settled
		}
		return asked, settled
	})
	u.aside.Add(int64(aside))
	u.laneStuck(set)
	set.tell()
	if aside > 0 && set.users > 1 {
		set.openSpare()
	}
	if busy || set.lineup.Divided() {
		set.looks.Reset(lookEvery)
	}
}

// trim closes lanes that no session has used since t.
func (set *laneSet) trim(t time.Time) {
	spare := set.users < 2 // whether a spare lane has been found
	for i, l := range set.lanes {
		switch {
		case l == nil, l.users > 0, !l.unused.Before(t), set.users > 0 && !set.lineup.Unused(i):
		case !spare:
			spare = true
		default:
			set.drop(i)
			l.close()
		}
	}
}

func (set *laneSet) empty() bool { return set.lanes == [lineup.Max]*Lane{} }

func (set *laneSet) close() {
	set.looks.Stop()
	for _, l := range set.lanes {
		if l != nil {
			l.close()
		}
	}
}
