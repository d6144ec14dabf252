package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A session stays on its lane while replies are outstanding there, so that its commands take effect in the order sent.
// With none outstanding it moves to another lane if its lane stands still, or does not take all commands at present.

// onLane returns the session's present lane, for a request. The first time it opens one to a server.
func (s *Session) onLane(row *command.Row, at upstream.Node) *upstream.Lane {
	switch {
	case s.lane == nil:
		s.role = s.wants(row)
		s.lane = s.proxy.Upstream.Lanes.Lane(s.ident, at, s.host.Driver(), s.owner, s.role)
	case s.out.Slots.Due() == 0 && (s.lane.Unsettled() || s.runsScripts(row)): // the lane for scripts may have changed
		s.role = s.wants(row)
		s.lane = s.proxy.Upstream.Lanes.Move(s.lane, s.role)
	default:
		return s.lane
	}
	if s.role != upstream.Large && !s.lane.Unsettled() {
		s.role = upstream.Reads // there is no other lane for writes, or for scripts, at present
	}
	return s.lane
}

// wants is the role of the lane for the command being routed.
func (s *Session) wants(row *command.Row) upstream.Role {
	switch {
	case s.weight.bulky():
		return upstream.Large
	case s.runsScripts(row):
		return upstream.Scripts
	case row.Writes:
		return upstream.Writes
	}
	return upstream.Reads
}

// runsScripts reports whether the command being routed belongs on the lane for scripts.
func (s *Session) runsScripts(row *command.Row) bool {
	return row.Script || s.weight.Mixed > 0
}

// mix keeps a session that sends a script behind other commands on the lane for scripts: it waits for its replies once,
// not at each script.
func (s *Session) mix(row *command.Row) {
	if row.Script && s.out.Slots.Due() > 0 {
		s.weight.Mixed = calmBursts
	}
}

// careful reports whether commands must be examined one by one, because it matters which of them write, or how many
// they are.
func (s *Session) careful() bool {
	return s.way.PlacesEach() || s.lane == nil || s.lane.Unsettled() ||
		s.weight.Window > 0 || s.outgrown() || s.doubted
}

// mustWait reports whether the next command must wait until nothing is outstanding, because it belongs on another lane,
// or may.
func (s *Session) mustWait(row *command.Row) bool {
	return s.out.Slots.Due() > 0 &&
		(s.strays(row) || row.Script && s.role == upstream.Reads || s.outgrown() || s.fills(row))
}

// fills reports whether as many commands are outstanding as allowed: see weight.
func (s *Session) fills(row *command.Row) bool {
	return s.weight.Window > 0 && !row.Writes && s.out.Slots.Due() >= s.weight.Window && s.role != upstream.Large
}

// outgrown reports whether the replies have become so large that further commands belong on another lane.
func (s *Session) outgrown() bool {
	return s.weight.Burst >= largeBurst && s.role != upstream.Large
}

// strays reports whether a command that writes would follow reads of this session to a lane that is kept free of
// writes.
func (s *Session) strays(row *command.Row) bool {
	return row.Writes && s.role == upstream.Reads && s.lane != nil && s.lane.Unsettled()
}

func (s *Session) leaveLane() {
	s.endVisit()
	s.way.Leave()
}

// endVisit leaves the lane that the session visits.
func (s *Session) endVisit() {
	if s.visited != nil {
		s.proxy.Upstream.Lanes.Leave(s.visited)
		s.visited = nil
	}
}

// conn returns the session's own connection: its pin, or its lane.
func (s *Session) conn(row *command.Row) upstream.Connection {
	if s.pin != nil {
		return s.pin.conn
	}
	return s.onLane(row, topology.Any)
}
