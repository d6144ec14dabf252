package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A session stays on its lane while replies are outstanding there, so that its commands take effect in the order sent.
// With none outstanding it moves to another lane if its lane stands still, or does not take all commands at present.

// onLane returns the session's present lane, for a request. The first time it opens one.
func (s *Session) onLane(row *command.Row) *upstream.Lane {
	switch {
	case s.lane == nil:
		s.role = s.wants(row)
		s.lane = s.proxy.Upstream.Lanes.Lane(s.ident, s.at, s.host.Driver(), s.owner, s.role)
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
	return s.clustered() || s.lane == nil || s.lane.Unsettled() ||
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
	s.leaveLanes(func(upstream.Node) bool { return true })
}

// endVisit leaves the lane that the session visits.
func (s *Session) endVisit() {
	if s.visited != nil {
		s.proxy.Upstream.Lanes.Leave(s.visited)
		s.visited = nil
	}
}

// In a cluster the session uses a lane to each server that it needs, all at once: the effects on each key keep their
// order, as pause.go says. Commands by which others learn of the session's work wait until nothing is
// outstanding, and the commands behind them wait for their answers. So do commands of several keys: while their slot
// moves some keys are at one server and some at the other.

// heldLane is a lane that the session has joined.
type heldLane struct {
	lane *upstream.Lane
	role upstream.Role
}

// aim finds the server of the command being routed. false: the session waits until nothing is outstanding.
func (s *Session) aim(r *request) bool {
	due := s.out.Slots.Due() > 0
	if !due {
		s.adopt()
	}
	r.look()
	r.lookForChannels()
	if !r.asking { // else it has been sent elsewhere
		r.target = s.serverOf(r)
	}
	alone := r.several() || r.row.Barrier || r.row.Script && r.slot < 0
	if due && (alone || s.alone || s.pause != nil || s.outdated()) {
		return s.awaitQuiet()
	}
	if s.alone = alone; due && r.target != topology.Any {
		s.turnTo(r.target)
	}
	return true
}

// serverOf is the server of a command's slot; Any: none is known. A command without a key goes where the session is,
// unless that server has refused it.
func (s *Session) serverOf(r *request) upstream.Node {
	switch {
	case r.slot >= 0:
		return s.ownerOf(r.slot)
	case r.held: // it is routed anew
		return s.anyServer()
	}
	return s.home()
}

// turnTo makes the lane to a server the present one.
func (s *Session) turnTo(at upstream.Node) {
	s.at = at
	if s.lane != nil && s.lane.At() == at {
		return
	}
	present := heldLane{s.lane, s.role}
	s.lane = nil
	for i, h := range s.others {
		if h.lane.At() == at {
			s.lane, s.role = h.lane, h.role
			s.others = slices.Delete(s.others, i, i+1)
			break
		}
	}
	if present.lane != nil {
		s.others = append(s.others, present)
	}
}

// leaveLanes leaves lanes on which nothing is outstanding.
func (s *Session) leaveLanes(which func(at upstream.Node) bool) {
	up := s.proxy.Upstream
	if s.lane != nil && which(s.lane.At()) {
		up.Lanes.Leave(s.lane)
		s.lane = nil
	}
	s.others = slices.DeleteFunc(s.others, func(h heldLane) bool {
		gone := which(h.lane.At())
		if gone {
			up.Lanes.Leave(h.lane)
		}
		return gone
	})
}

// conn returns the connection of a request that is not in front of a cluster, or on a pin.
func (s *Session) conn(row *command.Row) connection {
	if s.pin != nil {
		return s.pin.conn
	}
	return s.onLane(row)
}

// laneTo is the session's lane to a server of a cluster; nil: no server is known.
func (s *Session) laneTo(row *command.Row, at upstream.Node) connection {
	if at == topology.Any {
		return nil
	}
	s.turnTo(at)
	return s.onLane(row)
}

// scriptConn is the connection on which a script has been answered: in a cluster always a lane, because a pin may be at
// another server.
func (s *Session) scriptConn() connection {
	if s.clustered() {
		return s.onLane(callRow)
	}
	return s.conn(callRow)
}

// connection is a lane or a pin.
type connection interface {
	Append(b []byte, to upstream.Receiver, tag uint64, n int) error
	Progress() (appended, written int64)
	Scripts() *upstream.ScriptSet
	Rejected() bool
	IsUp() bool
	Note(m *metrics.Mark)
}
