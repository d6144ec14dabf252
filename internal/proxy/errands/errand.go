package errands

import (
	"bytes"
	"slices"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// An Errand is a command on its way to a server, and the handler of its reply.
type Errand struct {
	of  *Errands
	h   reply.Handler // of its reply; nil: it passes to the client
	at  reply.ID
	raw []byte // the command
	subject
	node   topology.Node // where it is sent
	home   topology.Node // where it was sent first
	fixed  bool          // it goes to that node and no other
	heirs  bool          // or else to its successor
	keys   commands.Spec // of a script
	writes bool

	// Of the reply.
	asked   bool   // it was sent behind an ASKING
	skips   bool   // the reply to that comes first
	begun   bool   // bytes of it have come
	failed  []byte // the reply so far, if it is an error
	probes  bool   // the server has been asked for the keys of a script
	answer  []byte // the error that it may have made up
	doubted bool   // the server has not confirmed it

	// Of refusals.
	attempts Attempts
	rests    uint64        // the round of Errands in which it is sent again
	moved    topology.Node // the server that serves its slot, as the last one that refused it says; Any: it names none
	asking   bool          // it is sent behind an ASKING
}

// over drops an errand that has been answered.
func (e *Errand) over() {
	n := e.of
	n.kept -= len(e.raw)
	if len(n.spare) < maxSpare && cap(e.raw) <= maxSpareRaw {
		*e = Errand{of: n, raw: e.raw[:0], failed: e.failed[:0], answer: e.answer[:0]}
		n.spare = append(n.spare, e)
	}
}

// depart sends the errand to its node.
func (e *Errand) depart() {
	e.of.flying++
	if e.node == topology.Any {
		e.of.session.Lose(e.at)
		return
	}
	e.begun, e.failed, e.probes = false, e.failed[:0], false
	e.asked, e.asking = e.asking, false
	e.attempts.Sent()
	e.transmit(e.raw)
}

// transmit sends the errand's command, or a question in its place, behind an ASKING if need be.
func (e *Errand) transmit(raw []byte) {
	if e.skips = e.asked; e.asked {
		e.of.session.Transmit(e.node, slices.Concat(command.Asking, raw), e.at, 2)
		return
	}
	e.of.session.Transmit(e.node, raw, e.at, 1)
}

// Take implements reply.Handler.
func (e *Errand) Take(at reply.ID, b []byte, n int, more bool) int {
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
	case more && len(e.failed) > reply.LongestRefusal && !e.probes:
		b, e.failed = e.failed, nil
		return e.pass(at, b, n, more)
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
		if e.reword() || e.probe() || e.refused() {
			return 0
		}
		b = e.failed
	}
	e.of.flying--
	if e.writes {
		e.of.note(e.node)
	}
	e.of.parked.carriedOut(e.subject, e.at)
	n = e.pass(at, b, n, more)
	e.over()
	return n
}

// A Reworded handler knows other words for its command, which a server understands that has refused the first ones.
type Reworded interface {
	// Otherwise returns the other words; nil: the refusal is the reply.
	Otherwise(refusal []byte) []byte
}

// For is the handler of the reply; nil: it passes to the client.
func (e *Errand) For() reply.Handler { return e.h }

// reword sends the command to the same server in other words, if its handler knows some.
func (e *Errand) reword() bool {
	r, ok := e.h.(Reworded)
	if !ok {
		return false
	}
	raw := r.Otherwise(e.failed)
	if raw == nil {
		return false
	}
	e.of.kept += len(raw) - len(e.raw)
	e.raw = append(e.raw[:0], raw...)
	e.begun, e.failed = false, e.failed[:0]
	e.transmit(e.raw)
	return true
}

// probe asks the server for the keys of a script that seems to have been refused, or whether it answers if the script has none. The reply comes in place
// of the script's.
func (e *Errand) probe() bool {
	if e.keys.Keyless() || topology.ReadRefusal(e.failed).Reason == topology.NotRefused || e.of.session.Gone() {
		return false
	}
	args := resp.Split(e.raw, nil)
	question := [][]byte{[]byte("EXISTS")}
	for _, i := range e.keys.All(args, nil) {
		question = append(question, args[i])
	}
	if len(question) == 1 {
		question = [][]byte{[]byte("PING")}
	}
	e.probes, e.answer = true, append(e.answer[:0], e.failed...)
	e.begun, e.failed = false, e.failed[:0]
	e.transmit(resp.AppendCommand(nil, question...))
	return true
}

// confirmed parks a script whose refusal the server confirms. If it does not, the slot may have moved meanwhile: the view tells.
func (e *Errand) confirmed() bool {
	e.probes = false
	if topology.ReadRefusal(e.failed).Reason != topology.NotRefused {
		return e.refused()
	}
	e.failed = append(e.failed[:0], e.answer...)
	if e.slot < 0 || !e.attempts.Refused(e.of.Wait()) {
		return false
	}
	e.doubted = true
	e.rest()
	return true
}

// pass hands bytes of the reply on.
func (e *Errand) pass(at reply.ID, b []byte, n int, more bool) int {
	if e.h != nil {
		return e.h.Take(at, b, n, more)
	}
	e.of.session.Pass(at, b, more)
	return n
}

// refused parks the errand if the error that it was answered with says that it has not run.
func (e *Errand) refused() bool {
	why := topology.ReadRefusal(e.failed)
	if !why.Concerns(e.slot) || e.of.session.Gone() {
		return false
	}
	e.attempts.Waited(e.of.Wait())
	if !e.attempts.Refused(e.of.Wait()) {
		e.giveUp()
		return false
	}
	e.moved = topology.Any
	if node := e.of.Refused(why); node != topology.Any {
		e.asking, e.node = true, node
		e.park()
		return true
	}
	if n := e.of.view.At(why.Address); n != nil {
		e.moved = topology.Node(n.ID)
	}
	if e.moved != topology.Any && e.moved != e.node && !e.fixed && e.attempts.First() {
		e.park() // it follows at once; the session's view may change later
		return true
	}
	e.rest()
	return true
}

// giveUp makes the refusal the reply to the client. It knows no other servers.
func (e *Errand) giveUp() {
	if topology.ReadRefusal(e.failed).Reason != topology.TryLate {
		e.failed = append(e.failed[:0], shared.NoUpstream...)
	}
}

// Unsent parks the errand, which could not be sent. false: the client is told.
func (e *Errand) Unsent() bool {
	s := e.of.session
	if s.Gone() || s.Hopeless() || !e.attempts.Refused(e.of.Wait()) {
		return false
	}
	e.failed = append(e.failed[:0], shared.NoUpstream...)
	e.rest()
	return true
}

// rest parks the errand until the view has been refreshed.
func (e *Errand) rest() {
	e.rests = e.of.round + 1
	e.park()
}

func (e *Errand) park() {
	n := e.of
	n.flying--
	n.parked.add(e)
	n.session.Await() // nothing may overtake it
}

// Lost implements reply.Handler.
func (e *Errand) Lost(at reply.ID, _ int, sent bool) {
	e.of.flying--
	if e.h != nil {
		e.h.Lost(at, 1, sent)
	} else {
		e.of.session.Refuse(at, 1)
	}
	e.over()
}

var _ reply.Handler = (*Errand)(nil)
