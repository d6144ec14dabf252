package lanes

import (
	"time"
)

// A set is the lanes of one identity to one server that one driver moves. It is guarded by Lanes.mu.
type set struct {
	all       *Lanes // immutable
	key       key    // immutable
	owner     string // the account on which it was opened; immutable
	selection laneSelection
	lanes     [maxLanes]*Lane // nil: not open
	users     int             // of all of them, also of those that have left the set
	placed    bool            // it has one of the places
	told      time.Time       // when Events.Stuck was called
	looks     *time.Timer     // runs look; armed while commands are outstanding
}

const (
	// lookEvery is the period in which lanes with outstanding commands are checked.
	lookEvery = 5 * time.Millisecond

	// probeEvery is the time for which commands of a lane are outstanding before it is asked whether its replies are in
	// step.
	probeEvery = time.Second

	// stuckPeriod is the time between two calls of Events.Stuck while a lane stands still: the server may have been
	// stopped, which nothing announces.
	stuckPeriod = 100 * time.Millisecond
)

func newSet(ls *Lanes, k key, owner string, placed bool) *set {
	s := &set{all: ls, key: k, owner: owner, placed: placed}
	s.looks = time.AfterFunc(time.Hour, s.look)
	s.looks.Stop()
	s.pause()
	return s
}

// pause takes over from Lanes until when writes are held back.
func (s *set) pause() {
	s.selection.Pause(s.all.paused, time.Now())
	s.tell()
	if s.selection.Divided() {
		s.looks.Reset(lookEvery)
	}
}

// pick returns the lane for a role.
func (s *set) pick(r Role) *Lane {
	i, open := s.selection.Pick(r)
	if open {
		s.open(i)
	}
	s.tell()
	return s.lanes[i]
}

// openSpare connects one lane ahead of need. When a lane stands still, it may be too late: a Redis that is busy with a
// script refuses SELECT.
func (s *set) openSpare() {
	if i, open := s.selection.Spare(); open {
		s.open(i)
		s.tell()
	}
}

func (s *set) open(i int) {
	l := newLane(s, i)
	s.lanes[i] = l
	s.all.lanes[l] = struct{}{}
	s.all.opts.Spawn(l.Run)
}

func (s *set) join(l *Lane) {
	if s.users == 0 {
		s.all.places.unused.Remove(s)
	}
	l.users++
	if s.users++; s.users > 1 {
		s.openSpare()
	}
}

// drop removes a lane from the set. Its users stay on it; without any it is closed.
func (s *set) drop(i int) {
	l := s.lanes[i]
	l.Settle(true)
	s.lanes[i] = nil
	s.selection.Close(i)
	if l.users == 0 {
		s.all.closeLocked(l)
	}
}

func (s *set) dropAll() {
	for i, l := range s.lanes {
		if l != nil {
			s.drop(i)
		}
	}
}

// tell tells the users of each lane whether they must Move.
func (s *set) tell() {
	for i, l := range s.lanes {
		if l != nil {
			l.Settle(s.selection.Settled(i))
		}
	}
}

// watch looks at the lanes while commands are outstanding. Requires no locks.
func (s *set) watch() { s.looks.Reset(lookEvery) }

// look sets aside lanes that stand still.
func (s *set) look() {
	ls := s.all
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if ls.closed {
		return
	}
	now, busy := time.Now(), false
	aside := s.selection.Look(now, func(i int) (asked, settled uint64) {
		l := s.lanes[i]
		asked, settled, connected := l.Moved()
		busy = busy || asked != settled
		if !connected { // another lane could not connect either
			return settled, settled
		}
		switch {
		case asked == settled:
			l.waits = time.Time{}
		case l.waits.IsZero():
			l.waits = now
		case now.Sub(l.waits) > probeEvery:
			l.waits = now
			l.Probe()
		}
		return asked, settled
	})
	ls.aside.Add(int64(aside))
	if s.selection.Aside() && now.Sub(s.told) > stuckPeriod {
		s.told = now
		ls.opts.Events.Stuck(s.key.target.At)
	}
	s.tell()
	if aside > 0 && s.users > 1 {
		s.openSpare()
	}
	if busy || s.selection.Divided() {
		s.looks.Reset(lookEvery)
	}
}

// trim closes lanes that no session has used since t.
func (s *set) trim(t time.Time) {
	spare := s.users < 2 // whether a spare lane has been found
	for i, l := range s.lanes {
		switch {
		case l == nil, l.users > 0, !l.unused.Before(t), s.users > 0 && !s.selection.Unused(i):
		case !spare:
			spare = true
		default:
			s.drop(i)
		}
	}
}

func (s *set) isEmpty() bool { return s.lanes == [maxLanes]*Lane{} }

// reject drops a lane whose credentials Redis has refused. Its users learn it from the lane. Requires no locks.
func (s *set) reject(l *Lane) {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	if !l.isDropped() {
		s.drop(l.number)
		if s.isEmpty() {
			s.all.removeLocked(s)
		}
	}
}
