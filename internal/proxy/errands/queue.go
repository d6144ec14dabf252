package errands

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// state says where an errand is.
type state uint8

const (
	sent      state = iota // on its way to a server, whose reply ends the state
	probing                // a script that seems to have been refused; the server is being asked about its keys
	held                   // refused; it waits for the replies to what was sent behind it, or for a new view
	queued                 // behind a refused command of its key
	overtaken              // held, but a command of its key that was sent behind it has been carried out
	givenUp                // it is not sent again
)

// place is the index of an errand in the queue of its key, or the one where it belongs.
func place(queue []*Errand, e *Errand) (i int, in bool) {
	return slices.BinarySearchFunc(queue, e.at, func(one *Errand, at reply.ID) int { return int(one.at) - int(at) })
}

// keep puts queue in the place of the present one of a key.
func (n *Errands) keep(about subject, queue []*Errand) {
	switch {
	case len(queue) == 0:
		delete(n.queues, about)
		return
	case n.queues == nil:
		n.queues = map[subject][]*Errand{}
	}
	n.queues[about] = queue
}

// send sends the errand, unless commands of its key wait.
func (e *Errand) send() {
	if _, waits := e.of.queues[e.subject]; waits {
		e.state = queued
		e.enqueue()
		return
	}
	e.depart()
}

// enqueue puts the errand, which has not been carried out, into the queue of its key.
func (e *Errand) enqueue() {
	n := e.of
	queue := n.queues[e.subject]
	i, in := place(queue, e)
	if !in {
		queue = slices.Insert(queue, i, e)
		n.keep(e.subject, queue)
	}
}

// again has the errand sent again when its turn comes.
func (e *Errand) again() {
	e.state = held
	e.enqueue()
	if e.to != nil && e.to.last != nil {
		e.to.last.then = append(e.to.last.then, e)
		return
	}
	e.turn()
}

// arrived says that the reply to what the errand has sent last is in, or will not come. It returns the errands that
// have waited for it.
func (e *Errand) arrived() (then []*Errand) {
	if e.to != nil && e.to.last == e {
		e.to.last = nil
	}
	then, e.then = e.then, nil
	return then
}

// turns gives their turn to errands that have waited.
func turns(list []*Errand) {
	for _, e := range list {
		e.turn()
	}
}

// turn goes on with an errand that has been refused.
func (e *Errand) turn() {
	n := e.of
	switch {
	case n.session.Gone():
	case e.state == overtaken:
		e.fail()
	case n.queues[e.subject][0] != e:
		e.state = queued
	case e.rests:
		n.rest(e)
	default:
		e.redirect()
	}
}

// rest has the errand sent again when the view has been refreshed. The first one's number of attempts says how soon.
func (n *Errands) rest(e *Errand) {
	n.resting = append(n.resting, e)
	if len(n.resting) > 1 {
		return
	}
	n.Later(e.node, e.attempts.Pause(), func() {
		list := n.resting
		n.resting = nil
		for _, e := range list {
			e.rests = false
			e.turn()
		}
	})
}

// redirect sends the errand again. All others of its key that were on their way have been answered, so it follows the
// newest view.
func (e *Errand) redirect() {
	n := e.of
	if !e.asking && !e.fixed {
		e.node = n.successor(e)
	}
	if e.heirs { // the session's view is the one by which its node was chosen
		if heir := n.view.Heir(string(e.node), n.cluster.View()); heir != nil {
			e.node = topology.Node(heir.ID)
		}
	}
	if n.to(e.node).last == nil {
		n.session.Leave(func(at topology.Node) bool { return at == e.node }) // the lane may be closed for good
	}
	e.depart()
}

// successor is the owner of an errand's slot. A view may be older than a refusal, by a server that has not heard of the
// change. Then it is the server that the refusal names.
func (n *Errands) successor(e *Errand) topology.Node {
	view := n.cluster.View()
	if e.slot < 0 {
		return n.Chance()
	}
	at := owner(view, e.slot)
	if at == e.node && e.moved != topology.Any && view.Server(string(e.moved)) != nil {
		return e.moved
	}
	return at
}

// settle goes on with the queue of the errand's key when its reply is final. If it was carried out, the errands before
// it in the queue are not sent again, and if there are none, those behind it follow it to its server.
func (e *Errand) settle() {
	n := e.of
	queue, waits := n.queues[e.subject]
	if !waits {
		e.over()
		return
	}
	i, in := place(queue, e)
	before, behind := queue[:i], queue[i:]
	if in {
		behind = behind[1:]
	}
	about, done, node, asked := e.subject, e.state != givenUp, e.node, e.asked
	e.over()
	if !done || len(before) > 0 {
		n.keep(about, slices.Concat(before, behind))
		for _, one := range before {
			if done && one.state == held {
				one.state = overtaken
			}
		}
		if first := n.queues[about]; len(first) > 0 && first[0].state == queued {
			first[0].turn()
		}
		return
	}
	n.keep(about, nil)
	for _, one := range behind {
		if one.state == queued {
			one.node, one.asking, one.rests = node, asked, false
			one.send()
		} else {
			one.enqueue()
		}
	}
}

// fail makes the refusal the reply to the client.
func (e *Errand) fail() {
	e.giveUp()
	session, at, answered := e.of.session, e.at, e.pass(e.at, e.failed, 1, false)
	e.settle()
	session.Answered(at, answered)
}

// giveUp says that the errand is not sent again. The client knows no other servers, so the refusal does not name one.
func (e *Errand) giveUp() {
	e.state = givenUp
	if topology.ReadRefusal(e.failed).Reason != topology.TryLate {
		e.failed = append(e.failed[:0], shared.NoUpstream...)
	}
}
