package session

import (
	"strconv"
	"time"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/weight"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// A session stays on its lane while replies are outstanding there, so that its commands take effect in the order sent. With
// none outstanding it moves to another lane if its lane stands still, or does not take all commands at present.

// onLane returns the session's lane; it has one from its first command on.
func (l *lanes) onLane() *upstream.Lane {
	s := l.s
	switch {
	case l.lane == nil:
		l.role = l.wants()
		l.lane = s.proxy.Upstream.Lane(s.ident, s.target, s.host.Driver(), s.owner, l.role)
	case s.slots.Due() == 0 && (l.lane.Unsettled() || l.runsScripts() && l.role == upstream.Reads):
		l.role = l.wants()
		l.lane = s.proxy.Upstream.Move(l.lane, l.role)
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
	if l.scripts && s.slots.Due() > 0 {
		l.Mixed = weight.CalmBursts
	}
}

// careful reports whether commands must be examined one by one, because it matters which of them write, or how many they are.
func (l *lanes) careful() bool {
	s := l.s
	return s.view != nil || l.lane == nil || l.lane.Unsettled() || l.Window > 0 || l.outgrown() || s.guard.Restricted()
}

// mustWait reports whether the next command must wait until nothing is outstanding, because it belongs on another lane, or may.
func (l *lanes) mustWait() bool {
	s := l.s
	return s.slots.Due() > 0 && (l.strays() || l.scripts && l.role == upstream.Reads || l.outgrown() || l.fills())
}

// fills reports whether as many commands are outstanding as allowed: see weight, and the limits of clients that have not authenticated.
func (l *lanes) fills() bool {
	s := l.s
	if s.guard.Restricted() {
		return true // one at a time, because the next ones will be refused too
	}
	return l.Window > 0 && !l.writes && s.slots.Due() >= l.Window && l.role != upstream.Large
}

// outgrown reports whether the replies have become so large that further commands belong on another lane.
func (l *lanes) outgrown() bool {
	return l.Burst >= weight.LargeBurst && l.role != upstream.Large
}

// strays reports whether a command that writes would follow reads of this session to a lane that is kept free of writes.
func (l *lanes) strays() bool {
	return l.writes && l.role == upstream.Reads && l.lane != nil && l.lane.Unsettled()
}

func (l *lanes) leaveLane() {
	s := l.s
	s.endVisit()
	if l.lane != nil {
		s.proxy.Upstream.Leave(l.lane)
		l.lane = nil
	}
	s.leaveOthers()
}

// endVisit leaves the lane that the session visits.
func (l *logins) endVisit() {
	s := l.s
	if l.visited != nil {
		s.proxy.Upstream.Leave(l.visited)
		l.visited = nil
	}
}

// pauseOf returns the action behind Redis's answer to a CLIENT PAUSE or UNPAUSE: reads and writes separate before the first write is
// held back. A pause from another client of Redis is noticed when a lane stands still.
func (l *lanes) pauseOf(row *command.Row) func(reply []byte) {
	s := l.s
	if row.Name != "client" {
		return nil
	}
	var length time.Duration
	switch command.Keyword(s.args, 1) {
	case "pause":
		ms, err := strconv.ParseInt(command.Keyword(s.args, 2), 10, 64)
		if err != nil {
			return nil // Redis refuses it
		}
		length = time.Duration(min(ms, maxPause.Milliseconds())) * time.Millisecond
	case "unpause":
	default:
		return nil
	}
	return func(reply []byte) {
		if resp.IsOK(reply) {
			s.proxy.Upstream.Paused(time.Now().Add(length))
		}
	}
}

// maxPause bounds the time for which a pause is remembered, not the pause.
const maxPause = 24 * time.Hour
