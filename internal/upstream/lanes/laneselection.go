package lanes

import "time"

// maxLanes is the largest number of lanes of a selection.
const maxLanes = 6

const (
	// StandsStill is the time that the oldest command of a lane waits before the lane is set aside.
	StandsStill = 25 * time.Millisecond

	// brisk is the number of answers within that time that shows that a lane does not stand still but has much to do:
	// another lane would be no faster.
	brisk = 256
)

// Role is the kind of commands that a lane takes.
type Role uint8

// The roles. While a selection is not divided, Reads takes writes as well.
const (
	Reads   Role = iota // commands that change no data
	Writes              // commands that may change data
	Scripts             // scripts of clients: their duration is unknown
	Large               // commands of sessions whose replies are large
	roles
)

// laneSelection is the lanes of one identity by number, 0 to maxLanes-1. The zero value has none. It is not safe for
// concurrent use.
//
// A lane that stands still then holds up only the sessions with commands on it. The selection is a state machine
// without I/O: its input is the progress of each lane, its output the lane to use.
//
//	Pick(role) ──► the role's lane, or one that is to be opened
//	Look ──► a lane whose oldest command waits too long loses its role: it is set aside until that command and all
//	         behind it have been answered. Meanwhile the selection is divided: writes and reads have lanes of their own.
//
// It is divided because Redis may hold back the writes of all clients (CLIENT PAUSE … WRITE). Otherwise the next lane
// would stand still with the first write on it, and so would each one after it, until there were no lane left to read
// on.
//
// Scripts have a lane of their own from the start. A command behind an endless script gets no answer, not even -BUSY,
// before the script is killed, and the command's client may be the one to kill it.
type laneSelection struct {
	lanes  [maxLanes]lane
	holder [roles]int // number of the role's lane plus one; 0: none
	until  time.Time  // writes are known to be held back until then
	paused bool       // they were at the last look
}

type lane struct {
	open  bool
	aside bool
	held  bool // it was set aside while it had the role Reads or Writes

	// Of its commands, when it was last seen to move.
	since          time.Time // zero: none was outstanding
	asked, settled uint64
}

// Pick returns the lane for a role. open: it is the caller's to open.
func (l *laneSelection) Pick(r Role) (i int, open bool) {
	if r == Writes && !l.Divided() {
		r = Reads
	}
	if h := l.holder[r]; h > 0 {
		return h - 1, false
	}
	i, n := l.free()
	if n < need(r) {
		return l.Pick(Reads)
	}
	l.holder[r] = i + 1
	open = !l.lanes[i].open
	l.lanes[i].open = true
	return i, open
}

// need is the number of lanes without a role that must exist before one gets a role: the last one is for reads.
func need(r Role) int {
	if r == Reads {
		return 1
	}
	return 2
}

// free counts the lanes without a role and finds one, an open one if possible.
func (l *laneSelection) free() (best, n int) {
	best = -1
	for i := range l.lanes {
		if l.lanes[i].aside || l.role(i) != roles {
			continue
		}
		if n++; best < 0 || l.lanes[i].open && !l.lanes[best].open {
			best = i
		}
	}
	return best, n
}

// role of a lane; roles: it has none.
func (l *laneSelection) role(i int) Role {
	for r, h := range l.holder {
		if h == i+1 {
			return Role(r)
		}
	}
	return roles
}

// Spare returns a lane to be opened ahead of need, unless one without a role is open already or the set is full.
func (l *laneSelection) Spare() (i int, open bool) {
	i, n := l.free()
	if n == 0 || l.lanes[i].open {
		return 0, false
	}
	l.lanes[i].open = true
	return i, true
}

// Unused reports whether a lane has no role, now or when it has drained.
func (l *laneSelection) Unused(i int) bool { return !l.lanes[i].aside && l.role(i) == roles }

// Use says for people what a lane is for.
func (l *laneSelection) Use(i int) string {
	switch r := l.role(i); {
	case l.lanes[i].aside:
		return "set aside"
	case r == Reads && l.Divided():
		return "reads"
	case r == Reads:
		return "all"
	case r == Writes:
		return "writes"
	case r == Scripts:
		return "scripts"
	case r == Large:
		return "large replies"
	default:
		return "spare"
	}
}

// Settled reports whether the users of a lane need not Pick again before the next command.
func (l *laneSelection) Settled(i int) bool {
	switch l.role(i) {
	case Reads:
		return !l.Divided()
	case Large:
		return true
	default:
		return false
	}
}

// MayBeHeld reports whether a lane stands still if Redis holds back writes: it is one for writes or scripts, or has
// been set aside.
func (l *laneSelection) MayBeHeld(i int) bool {
	r := l.role(i)
	return l.lanes[i].aside || r == Writes || r == Scripts
}

// Divided reports whether writes travel on a lane of their own.
func (l *laneSelection) Divided() bool {
	if l.paused {
		return true
	}
	for i := range l.lanes {
		if l.lanes[i].held {
			return true
		}
	}
	return false
}

// Aside reports whether a lane is set aside.
func (l *laneSelection) Aside() bool {
	for i := range l.lanes {
		if l.lanes[i].aside {
			return true
		}
	}
	return false
}

// Pause says that Redis holds back writes until a time, as far as is known at present; a time that is over ends it.
func (l *laneSelection) Pause(until, now time.Time) {
	l.until = until
	l.pass(now)
}

// pass lets time pass.
func (l *laneSelection) pass(now time.Time) {
	l.paused = now.Before(l.until)
	if !l.Divided() {
		l.holder[Writes] = 0
	}
}

// Close says that a lane is closed.
func (l *laneSelection) Close(i int) {
	if r := l.role(i); r != roles {
		l.holder[r] = 0
	}
	l.lanes[i] = lane{}
}

// Look takes in how many commands each open lane has been asked and how many of them are settled. It returns how many
// lanes it has set aside.
func (l *laneSelection) Look(now time.Time, progress func(i int) (asked, settled uint64)) (aside int) {
	for i := range l.lanes {
		n := &l.lanes[i]
		if !n.open {
			continue
		}
		asked, settled := progress(i)
		switch {
		case asked == settled:
			*n = lane{open: true}
		case n.since.IsZero() || asked < n.asked:
			n.since, n.asked, n.settled = now, asked, settled
		case settled >= n.asked || settled-n.settled >= brisk:
			n.since, n.asked, n.settled = now, asked, settled
			n.aside, n.held = false, false
		case now.Sub(n.since) >= StandsStill && l.setAside(i):
			aside++
		}
	}
	l.pass(now)
	return aside
}

// setAside takes its role from a lane, unless there are too few to replace it. Writes that are held back would stop one
// lane after the other, so lanes are left for reads to move on to.
func (l *laneSelection) setAside(i int) bool {
	r := l.role(i)
	if r == roles {
		return false
	}
	least := need(r)
	if r != Reads {
		least++
	}
	if _, n := l.free(); n < least {
		return false
	}
	l.holder[r] = 0
	l.lanes[i].aside, l.lanes[i].held = true, r == Reads || r == Writes
	return true
}
