package session

import (
	"bytes"
	"slices"
	"time"

	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/replies"
	"lockproxy/internal/proxy/shared"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/internal/upstream/cluster"
	"lockproxy/internal/upstream/keyspec"
)

// An errand is a command on its way to a server of a cluster. If a server refuses it because another one serves its slot, or because it cannot
// be carried out yet, the errand is parked. When nothing else is on its way, the parked errands are sent again, one after the other, in the order
// of the commands. Their replies keep their slots.
//
// Only a command that has certainly not run is sent again: a server refused it in Redis's own words, or it has not been written. It goes to a
// server of the view, or nowhere. A script may answer with any words after it has run. So the server is asked for the script's keys (EXISTS): if it
// does not refuse that for the same reason, the reply is the script's own.
//
// A command is not sent again if one of the same slot that was sent behind it has been carried out.
type errand struct {
	s     *Session
	h     handler // of its reply; nil: it passes to the client
	at    replies.ID
	raw   []byte        // the command
	slot  int           // of its first key; -1: it has none
	node  upstream.Node // where it is sent
	home  upstream.Node // where it was sent first
	fixed bool          // it goes to that node and no other
	keys  keyspec.Spec  // of a script

	// Of the reply.
	asked   bool   // it was sent behind an ASKING
	skips   bool   // the reply to that comes first
	begun   bool   // bytes of it have come
	failed  []byte // the reply so far, if it is an error
	probes  bool   // the server has been asked for the keys of a script
	answer  []byte // the error that it may have made up
	doubted bool   // the server has not confirmed it

	// Of refusals.
	since  time.Time // of the first one
	tries  int
	rests  bool // it is sent again when the view has been refreshed
	asking bool // it is sent behind an ASKING
	late   bool // a command behind it has been carried out
}

// failoverWait is the time for which a command is sent again.
const failoverWait = time.Second

// send sends the command being routed on a lane to the target.
func (n *nodes) send(raw []byte, h handler) {
	s := n.s
	e := n.newErrand()
	e.h, e.slot, e.node, e.fixed, e.keys = h, n.slot, n.target, n.fixed, n.keys
	e.home = e.node
	e.raw = append(e.raw, raw...)
	n.kept += len(raw)
	var conn connection
	if n.target != upstream.AnyNode {
		n.turnTo(n.target)
		conn = s.onLane()
	}
	e.at = s.slots.Add(conn, e, 1)
	s.unanswered += slotCost
	e.depart()
	n.goOn()
}

func (n *nodes) newErrand() *errand {
	if last := len(n.spare) - 1; last >= 0 {
		e := n.spare[last]
		n.spare = n.spare[:last]
		return e
	}
	return &errand{s: n.s}
}

// maxSpare bounds the errands that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// over drops an errand that has been answered.
func (e *errand) over() {
	n := &e.s.nodes
	n.kept -= len(e.raw)
	if len(n.spare) < maxSpare && cap(e.raw) <= maxSpareRaw {
		*e = errand{s: e.s, raw: e.raw[:0], failed: e.failed[:0], answer: e.answer[:0]}
		n.spare = append(n.spare, e)
	}
}

// depart sends the errand to its node.
func (e *errand) depart() {
	s := e.s
	s.flying++
	if e.node == upstream.AnyNode {
		s.lose(e.at, 1, false)
		return
	}
	s.turnTo(e.node)
	lane := s.onLane()
	e.begun, e.failed, e.probes = false, e.failed[:0], false
	if e.skips, e.asked = e.asking, e.asking; e.asking {
		e.asking = false
		s.script = append(append(s.script[:0], command.Asking...), e.raw...)
		s.transmit(lane, s.script, e.at, 2)
		return
	}
	s.transmit(lane, e.raw, e.at, 1)
}

// take is handler.
func (e *errand) take(at replies.ID, b []byte, n int, more bool) int {
	s := e.s
	if e.skips {
		end := bytes.IndexByte(b, '\n')
		if end < 0 {
			return 0
		}
		e.skips, b, n = false, b[end+1:], n-1
		if len(b) == 0 {
			return 0
		}
	}
	if !e.begun && b[0] == '-' || len(e.failed) > 0 {
		e.failed = append(e.failed, b...)
		b = e.failed
	}
	e.begun = true
	switch {
	case more && (e.probes || len(e.failed) > 0):
		return 0
	case more:
		return e.pass(at, b, n, more)
	case e.probes:
		if e.confirmed() {
			return 0
		}
		b = e.failed
	case len(e.failed) > 0:
		if e.probe() || e.refused() {
			return 0
		}
		b = e.failed
	}
	s.flying--
	s.overtake(e)
	n = e.pass(at, b, n, more)
	e.over()
	return n
}

// probe asks the server for the keys of a script that seems to have been refused. The reply comes in place of the script's.
func (e *errand) probe() bool {
	s := e.s
	if e.keys.Keyless() || cluster.Read(e.failed).Reason == cluster.Done || s.gone() {
		return false
	}
	args := resp.Split(e.raw, nil)
	question := [][]byte{[]byte("EXISTS")}
	for _, i := range e.keys.All(args, nil) {
		question = append(question, args[i])
	}
	if len(question) == 1 {
		return false
	}
	e.probes, e.answer = true, append(e.answer[:0], e.failed...)
	e.begun, e.failed = false, e.failed[:0]
	raw := resp.AppendCommand(nil, question...)
	s.turnTo(e.node)
	if e.skips = e.asked; e.asked {
		s.transmit(s.onLane(), append(bytes.Clone(command.Asking), raw...), e.at, 2)
	} else {
		s.transmit(s.onLane(), raw, e.at, 1)
	}
	return true
}

// confirmed parks a script whose refusal the server confirms. If it does not, the slot may have moved meanwhile: the view tells.
func (e *errand) confirmed() bool {
	e.probes = false
	if cluster.Read(e.failed).Reason != cluster.Done {
		return e.refused()
	}
	e.failed = append(e.failed[:0], e.answer...)
	if e.tired() {
		return false
	}
	e.rests, e.doubted = true, true
	e.park()
	return true
}

// overtake marks the parked commands before e that concern the same slot.
func (n *nodes) overtake(e *errand) {
	for _, p := range n.parked {
		if p.slot == e.slot && p.at < e.at {
			p.late = true
		}
	}
}

// pass hands bytes of the reply on.
func (e *errand) pass(at replies.ID, b []byte, n int, more bool) int {
	if e.h != nil {
		return e.h.take(at, b, n, more)
	}
	e.s.Burst += len(b)
	e.s.put(at, b, more)
	return n
}

// refused parks the errand if the error that it was answered with says that it has not run.
func (e *errand) refused() bool {
	s := e.s
	r := cluster.Read(e.failed)
	if r.Reason == cluster.Done || s.gone() || r.Reason != cluster.TryLate && r.Slot != e.slot {
		return false
	}
	if e.tired() {
		e.giveUp()
		return false
	}
	hint := s.view.At(r.Address)
	e.rests = true
	if r.Reason == cluster.Asking && hint != nil {
		e.rests, e.asking, e.node = false, true, upstream.Node(hint.ID)
	} else if hint != nil {
		s.proxy.Upstream.Refresh(upstream.Node(hint.ID), nil)
	}
	e.park()
	return true
}

// giveUp makes the refusal the reply to the client. It knows no other servers.
func (e *errand) giveUp() {
	if cluster.Read(e.failed).Reason != cluster.TryLate {
		e.failed = append(e.failed[:0], shared.NoUpstream...)
	}
}

// tired reports whether the errand has been refused for too long.
func (e *errand) tired() bool {
	if e.tries++; e.tries == 1 {
		e.since = time.Now()
	}
	return time.Since(e.since) > failoverWait
}

// unsent parks the errand if it could not be sent.
func (e *errand) unsent() bool {
	s := e.s
	if s.gone() || s.lane != nil && (s.lane.Full() || s.lane.Rejected() || s.lane.Refusal() != nil) || e.tired() {
		return false
	}
	e.rests, e.failed = true, append(e.failed[:0], shared.NoUpstream...)
	e.park()
	return true
}

func (e *errand) park() {
	n := &e.s.nodes
	n.flying--
	i, _ := slices.BinarySearchFunc(n.parked, e.at, func(p *errand, at replies.ID) int { return int(p.at) - int(at) })
	n.parked = slices.Insert(n.parked, i, e)
	if e.s.wait == waitNone {
		e.s.wait = waitQuiet // nothing may overtake it
	}
}

// lost is handler.
func (e *errand) lost(at replies.ID, n int, sent bool) {
	e.s.flying--
	if e.h != nil {
		e.h.lost(at, 1, sent)
	} else {
		e.s.refuse(at, 1)
	}
	e.over()
}

// goOn sends the parked errands again when nothing is on its way.
func (n *nodes) goOn() {
	s := n.s
	for len(n.parked) > 0 && n.flying == 0 && !n.resting && !s.gone() {
		e := n.parked[0]
		if e.rests {
			n.rest(e)
			return
		}
		n.parked = slices.Delete(n.parked, 0, 1)
		if e.doubted && !e.fixed {
			n.adopt()
			e.late = e.late || n.serverOf(e.slot) == e.home
		}
		if e.late {
			if !e.doubted {
				e.giveUp()
			}
			at, answered := e.at, e.pass(e.at, e.failed, 1, false)
			e.over()
			s.answered(at, answered)
			continue
		}
		if !e.asking && !e.fixed {
			n.adopt()
			if e.node = n.serverOf(e.slot); e.slot < 0 {
				e.node = n.chance()
			}
		}
		e.doubted = false
		n.leaveIf(func(at upstream.Node) bool { return at == e.node }) // the lane may be closed for good
		e.depart()
	}
}

// rest has the parked errands sent again when the view has been refreshed. The first one's number of attempts says how soon.
func (n *nodes) rest(e *errand) {
	n.resting = true
	n.refreshed(e.node, backoff(e.tries), func() {
		n.resting = false
		for _, p := range n.parked {
			p.rests = false
		}
		n.goOn()
	})
}

// backoff is the pause before an attempt.
func backoff(tries int) time.Duration {
	if tries <= 1 {
		return 0
	}
	return min(5*time.Millisecond<<min(tries-2, 8), 100*time.Millisecond)
}

// refreshed has f called after a pause and a refresh of the view. f requires the session lock.
func (n *nodes) refreshed(hint upstream.Node, pause time.Duration, f func()) {
	s := n.s
	then := func() {
		defer s.host.Flush()
		s.mu.Lock()
		defer s.exit()
		if !s.gone() {
			f()
			s.advance()
		}
	}
	if pause == 0 {
		s.proxy.Upstream.Refresh(hint, then)
		return
	}
	time.AfterFunc(pause, func() { s.proxy.Upstream.Refresh(hint, then) })
}

// dropErrands gives up the parked errands of a session that has ended.
func (n *nodes) dropErrands() {
	for _, e := range n.parked {
		n.s.slots.Answer(e.at, 1)
		n.kept -= len(e.raw)
	}
	n.parked, n.repeated = nil, nil
}

var _ handler = (*errand)(nil)
