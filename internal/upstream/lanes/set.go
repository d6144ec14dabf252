package lanes

import (
	"time"
)

// A set is the lanes of one identity to one server that one driver moves. It is guarded by Lanes.mu. It is the owner of
// its lanes.
type set struct {
	all       *Lanes // immutable
	key       key    // immutable
	owner     string // the account on which it was opened; immutable
	selection laneSelection
	members   [maxLanes]*member // nil: not open
	users     int               // of all of them, also of those that have left the set
	placed    bool              // it has one of the places
	told      time.Time         // when Events.Stuck was called
	looks     *time.Timer       // runs look; armed while commands are outstanding
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
func (s *set) pick(r Role) *member {
	i, open := s.selection.Pick(r)
	if open {
		s.open(i)
	}
	s.tell()
	return s.members[i]
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
	o, id := &s.all.opts, s.key.target.ID
	l := newLane(laneOptions{
		Target: s.key.target, Driver: s.key.driver, Dialer: o.Dialer, Own: o.Own(id), Meek: o.Meek, Logger: o.Logger, Entries: o.Entries,
		Owner: s, Busy: s.watch,
	})
	m := &member{lane: l, set: s, number: i, unused: time.Now()}
	s.members[i] = m
	s.all.members[l] = m
	o.Spawn(l.Run)
}

func (s *set) join(m *member) {
	if s.users == 0 {
		s.all.places.unused.Remove(s)
	}
	m.users++
	if s.users++; s.users > 1 {
		s.openSpare()
	}
}

// drop removes a lane from the set. Its users stay on it; without any it is closed.
func (s *set) drop(i int) {
	m := s.members[i]
	m.lane.Settle(true)
	s.members[i] = nil
	s.selection.Close(i)
	if m.users == 0 {
		s.all.closeLocked(m)
	}
}

func (s *set) dropAll() {
	for i, m := range s.members {
		if m != nil {
			s.drop(i)
		}
	}
}

// tell tells the users of each lane whether they must Move.
func (s *set) tell() {
	for i, m := range s.members {
		if m != nil {
			m.lane.Settle(s.selection.Settled(i))
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
		m := s.members[i]
		asked, settled, connected := m.lane.Moved()
		busy = busy || asked != settled
		if !connected { // another lane could not connect either
			return settled, settled
		}
		switch {
		case asked == settled:
			m.unsettled = time.Time{}
		case m.unsettled.IsZero():
			m.unsettled = now
		case now.Sub(m.unsettled) > probeEvery:
			m.unsettled = now
			m.lane.Probe()
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
	for i, m := range s.members {
		switch {
		case m == nil, m.users > 0, !m.unused.Before(t), s.users > 0 && !s.selection.Unused(i):
		case !spare:
			spare = true
		default:
			s.drop(i)
		}
	}
}

func (s *set) isEmpty() bool { return s.members == [maxLanes]*member{} }

// InUse is a method of laneOwner.
func (s *set) InUse(l *Lane) bool {
	s.all.mu.Lock()
	defer s.all.mu.Unlock()
	m := s.all.members[l]
	return m != nil && m.users > 0
}

// Connected is a method of laneOwner.
func (s *set) Connected(_ *Lane, again bool) {
	s.all.opts.Events.Connected(s.key.target, s.owner, again)
}

// Failed is a method of laneOwner.
func (s *set) Failed(l *Lane, err error) {
	s.all.opts.Events.Failed(s.key.target, err, s.InUse(l))
}

// Lost is a method of laneOwner.
func (s *set) Lost(*Lane) {
	s.all.lost.Add(1)
	s.all.opts.Events.Lost(s.key.target)
}

// Rejected is a method of laneOwner. Its users learn it from the lane.
func (s *set) Rejected(l *Lane) {
	s.all.mu.Lock()
	if m := s.all.members[l]; m != nil && !m.isDropped() {
		s.drop(m.number)
		if s.isEmpty() {
			s.all.removeLocked(s)
		}
	}
	s.all.mu.Unlock()
	s.all.opts.Events.Rejected(s.key.target.ID)
}
