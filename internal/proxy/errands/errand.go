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
	state  state
	node   topology.Node // where it is sent
	to     *server       // where it was sent last; nil: nowhere yet
	fixed  bool          // it goes to that node and no other
	heirs  bool          // or else to its successor
	keys   commands.Spec // of a script
	writes bool

	// Of the reply.
	asked  bool   // it was sent behind an ASKING
	skips  bool   // the reply to that comes first
	begun  bool   // bytes of it have come
	failed []byte // the reply so far, if it is an error
	answer []byte // of a script: the error that it may have made up

	// Of refusals.
	attempts Attempts
	rests    bool          // it waits for a new view
	moved    topology.Node // the server that serves its slot, as the last one that refused it says; Any: it names none
	asking   bool          // it is sent behind an ASKING
	then     []*Errand     // the refused ones that wait for the reply
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
	e.state = sent
	if e.node == topology.Any {
		e.of.session.Lose(e.at)
		return
	}
	e.begun, e.failed = false, e.failed[:0]
	e.asked, e.asking = e.asking, false
	e.attempts.Sent()
	e.transmit(e.raw)
}

// transmit sends the errand's command, or a question in its place, behind an ASKING if need be.
func (e *Errand) transmit(raw []byte) {
	e.to = e.of.to(e.node)
	e.to.last = e
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
	case more && len(e.failed) > reply.LongestRefusal && e.state != probing:
		b, e.failed = e.failed, nil
		return e.pass(at, b, n, more)
	case more && (e.state == probing || len(e.failed) > 0):
		return 0
	case more:
		return e.pass(at, b, n, more)
	}
	then := e.arrived()
	n = e.end(at, b, n)
	turns(then)
	return n
}

// end takes the end of the reply.
func (e *Errand) end(at reply.ID, b []byte, n int) int {
	switch {
	case e.state == probing && e.madeUp():
		b = e.answer
	case e.state == probing:
		if e.refuse() {
			return 0
		}
		b = e.failed
	case len(e.failed) > 0:
		if e.reword() || e.probe() || e.refuse() {
			return 0
		}
		b = e.failed
	}
	if e.writes {
		e.of.note(e.node)
	}
	n = e.pass(at, b, n, false)
	e.settle()
	return n
}

// A Reworded handler knows other words for its command, which a server understands that has refused the first ones.
type Reworded interface {
	// Otherwise returns the other words; nil: the refusal is the reply.
	Otherwise(refusal []byte) []byte
}

// At is the server to which it is sent; Any: none is known.
func (e *Errand) At() topology.Node { return e.node }

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

// probe asks the server for the keys of a script that seems to have been refused, or whether it answers if the script
// has none. The reply comes in place of the script's.
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
	e.state, e.answer = probing, append(e.answer[:0], e.failed...)
	e.begun, e.failed = false, e.failed[:0]
	e.transmit(resp.AppendCommand(nil, question...))
	return true
}

// madeUp reports whether the answer to a probe says that the script has made up the refusal: the server does not refuse
// the keys.
func (e *Errand) madeUp() bool {
	return topology.ReadRefusal(e.failed).Reason == topology.NotRefused
}

// pass hands bytes of the reply on.
func (e *Errand) pass(at reply.ID, b []byte, n int, more bool) int {
	if e.h != nil {
		return e.h.Take(at, b, n, more)
	}
	e.of.session.Pass(at, b, more)
	return n
}

// refuse has the errand sent again if the error that it was answered with says that it has not run.
func (e *Errand) refuse() bool {
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
		e.again()
		return true
	}
	if n := e.of.cluster.View().At(why.Address); n != nil {
		e.moved = topology.Node(n.ID)
	}
	// After one redirection it follows at once: the session's view may change later.
	e.rests = e.moved == topology.Any || e.moved == e.node || e.fixed || !e.attempts.First()
	e.again()
	return true
}

// Unsent has the errand sent again, which could not be sent. false: the client is told.
func (e *Errand) Unsent() bool {
	s := e.of.session
	if s.Gone() || s.Hopeless() || !e.attempts.Refused(e.of.Wait()) {
		return false
	}
	then := e.arrived()
	e.failed = append(e.failed[:0], shared.NoUpstream...)
	e.rests = true
	e.again()
	turns(then)
	return true
}

// Lost implements reply.Handler.
func (e *Errand) Lost(at reply.ID, _ int, sent bool) {
	then := e.arrived()
	if e.h != nil {
		e.h.Lost(at, 1, sent)
	} else {
		e.of.session.Refuse(at, 1)
	}
	e.state = givenUp
	e.settle()
	turns(then)
}

var _ reply.Handler = (*Errand)(nil)
