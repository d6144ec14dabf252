package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/ears"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A session stays on its lane while replies are outstanding there, so that its commands take effect in the order sent. With
// none outstanding it moves to another lane if its lane stands still, or does not take all commands at present.

// onLane returns the session's lane; it has one from its first command on.
func (l *lanes) onLane() *upstream.Lane {
	s := l.s
	switch {
	case l.lane == nil:
		l.role = l.wants()
		l.lane = s.proxy.Upstream.Lane(s.ident, s.Target, s.host.Driver(), s.owner, l.role)
	case s.Slots.Due() == 0 && (l.lane.Unsettled() || l.runsScripts()): // the lane for scripts may have become another one since
		l.role = l.wants()
		l.lane = s.proxy.Upstream.Move(l.lane, l.role)
	default:
		return l.lane
	}
	if l.role != upstream.Large && !l.lane.Unsettled() {
		l.role = upstream.Reads // there is no other lane for writes, or for scripts, at present
	}
	return l.lane
}

// wants is the role of the lane for the command being routed.
func (l *lanes) wants() upstream.Role {
	switch {
	case l.Bulky():
		return upstream.Large
	case l.runsScripts():
		return upstream.Scripts
	case l.writes:
		return upstream.Writes
	}
	return upstream.Reads
}

// runsScripts reports whether the command being routed belongs on the lane for scripts.
func (l *lanes) runsScripts() bool {
	return l.scripts || l.Mixed > 0
}

// mix keeps a session that sends a script behind other commands on the lane for scripts: it waits for its replies once, not at
// each script.
func (l *lanes) mix() {
	s := l.s
	if l.scripts && s.Slots.Due() > 0 {
		l.Mixed = CalmBursts
	}
}

// careful reports whether commands must be examined one by one, because it matters which of them write, or how many they are.
func (l *lanes) careful() bool {
	s := l.s
	return s.Clustered() || l.lane == nil || l.lane.Unsettled() || l.Window > 0 || l.outgrown() || s.guard.Restricted()
}

// mustWait reports whether the next command must wait until nothing is outstanding, because it belongs on another lane, or may.
func (l *lanes) mustWait() bool {
	s := l.s
	return s.Slots.Due() > 0 && (l.strays() || l.scripts && l.role == upstream.Reads || l.outgrown() || l.fills())
}

// fills reports whether as many commands are outstanding as allowed: see weight, and the limits of clients that have not authenticated.
func (l *lanes) fills() bool {
	s := l.s
	if s.guard.Restricted() {
		return true // one at a time, because the next ones will be refused too
	}
	return l.Window > 0 && !l.writes && s.Slots.Due() >= l.Window && l.role != upstream.Large
}

// outgrown reports whether the replies have become so large that further commands belong on another lane.
func (l *lanes) outgrown() bool {
	return l.Burst >= LargeBurst && l.role != upstream.Large
}

// strays reports whether a command that writes would follow reads of this session to a lane that is kept free of writes.
func (l *lanes) strays() bool {
	return l.writes && l.role == upstream.Reads && l.lane != nil && l.lane.Unsettled()
}

func (l *lanes) leaveLane() {
	s := l.s
	s.endVisit()
	l.leaveIf(func(upstream.Node) bool { return true })
}

// endVisit leaves the lane that the session visits.
func (l *logins) endVisit() {
	s := l.s
	if l.visited != nil {
		s.proxy.Upstream.Leave(l.visited)
		l.visited = nil
	}
}

// In a cluster the session uses a lane to each server that it needs. A command for another server than those before it waits until nothing is
// outstanding. So the commands take effect in the order sent. Several lanes have commands of the session at a time only if these are
// reads, or the parts of one divided command, or if the operator asks for the order of each key only.

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

// aim finds the server of the command being routed, and makes the session wait if commands are outstanding at another one. false: it waits.
func (l *lanes) aim(row *command.Row) bool {
	s := l.s
	if s.Slots.Due() == 0 {
		s.Adopt()
	}
	if s.Look(row, s.args); row.Name == "publish" {
		s.Slot = ears.PublishSlot
	}
	s.Target = l.serverOf(s.Slot)
	if row.Policy == command.PinAfterWrite {
		s.Target = l.firstOfRound()
	}
	if r := s.repeated; r != nil && r.asking != upstream.AnyNode {
		s.Target, s.Asks = r.asking, true
	}
	if s.Slots.Due() == 0 {
		l.wrote = false
	} else if l.alone || row.Barrier || s.Parked() || l.lane == nil || l.lane.At() != s.Target && !l.free(row) {
		return s.awaitQuiet()
	} else {
		l.turnTo(s.Target)
	}
	l.alone, l.wrote = s.Many, l.wrote || row.Writes
	return true
}

// free reports whether the command being routed may be sent while commands are outstanding at another server: reads have no effect that could come
// too early, or the operator asks for the order of each key only.
func (l *lanes) free(row *command.Row) bool {
	s := l.s
	if row.Policy != command.Shared || row.Script || s.Slot < 0 {
		return false
	}
	return s.proxy.Settings.Cluster.ByKey || !l.wrote && !row.Writes
}

// serverOf is the server of a slot; AnyNode: none is known. A command without a key goes where the session is.
func (l *lanes) serverOf(slot int) upstream.Node {
	if slot < 0 {
		return l.home()
	}
	return l.s.Owner(slot)
}

// firstOfRound is the server for a WAIT.
func (l *lanes) firstOfRound() upstream.Node {
	if l.repeated == nil {
		l.round = nil
	}
	if l.round != nil {
		return l.round.At()
	}
	if list := l.s.WrittenTo(); len(list) > 0 {
		return list[0]
	}
	return l.home()
}

// turnTo makes the lane to a server the present one.
func (l *lanes) turnTo(at upstream.Node) {
	l.s.Target = at
	if l.lane != nil && l.lane.At() == at {
		return
	}
	present := heldLane{l.lane, l.role}
	l.lane = nil
	for i, h := range l.others {
		if h.lane.At() == at {
			l.lane, l.role = h.lane, h.role
			l.others = slices.Delete(l.others, i, i+1)
			break
		}
	}
	if present.lane != nil {
		l.others = append(l.others, present)
	}
}

// leaveIf leaves lanes on which nothing is outstanding.
func (l *lanes) leaveIf(which func(at upstream.Node) bool) {
	up := l.s.proxy.Upstream
	if l.lane != nil && which(l.lane.At()) {
		up.Leave(l.lane)
		l.lane = nil
	}
	l.others = slices.DeleteFunc(l.others, func(h heldLane) bool {
		gone := which(h.lane.At())
		if gone {
			up.Leave(h.lane)
		}
		return gone
	})
}
