package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster the commands of a key take effect in the order sent. The session sends them to one server, the
// owner of the slot in its view, on one connection, and takes the next view when nothing is on its way. A server that
// has lost a key refuses each of its commands from then on. So there is nothing to do before the first refusal. From
// then on the key has a queue, in the order of the commands:
//
//   - Further requests of the key join its end. Those that have been sent to the server are refused there as well, and
//     join it at their place.
//   - The first is sent again when the server has answered everything that was on its way there at the refusal. So no
//     request of the key is on its way.
//   - When it is carried out, the others follow it, one behind the other, on the same connection, and the queue ends.
//
// A server may refuse one request and carry out the next one of the key: its data has just been loaded, or the slot has
// come back. Then the client gets the refusal, and the request is not sent again. If a slot leaves a
// server and comes back, it does so when no request from before is on its way: a move takes longer than that.
//
// Keys are told apart by a hash, so a request keeps no copy of its key. Commands of several keys are sent alone: while
// a slot moves, some of its keys are at one server and some at the other.

// requestState says where a request is that has been sent to a server of a cluster.
type requestState uint8

const (
	onItsWay   requestState = iota // to a server, whose reply ends the state
	awaitsTurn                     // refused; it waits for the replies to what was sent behind it, or for a new view
	inQueue                        // behind a refused request of its key
	overtaken                      // refused, but a request of its key that was sent behind it has been carried out
	givenUp                        // it is not sent again
)

// subject is what requests concern whose order counts: a key.
type subject struct {
	slot int
	key  uint64 // 0: there is none, or several
}

// place is the index of a request in the queue of its key, or the one where it belongs.
func place(queue []*request, r *request) (i int, in bool) {
	return slices.BinarySearchFunc(queue, r.at, func(one *request, at reply.ID) int { return int(one.at) - int(at) })
}

// keepQueue puts queue in the place of the present one of a key.
func (s *Session) keepQueue(about subject, queue []*request) {
	switch {
	case len(queue) == 0:
		delete(s.queues, about)
		return
	case s.queues == nil:
		s.queues = map[subject][]*request{}
	}
	s.queues[about] = queue
}

// follow sends the request, unless requests of its key wait.
func (r *request) follow() {
	if _, waits := r.s.queues[r.subject()]; waits {
		r.state = inQueue
		r.enqueue()
		return
	}
	r.depart()
}

// enqueue puts the request, which has not been carried out, into the queue of its key.
func (r *request) enqueue() {
	queue := r.s.queues[r.subject()]
	i, in := place(queue, r)
	if !in {
		r.s.keepQueue(r.subject(), slices.Insert(queue, i, r))
	}
}

// again has the request sent again when its turn comes.
func (r *request) again() {
	r.state = awaitsTurn
	r.enqueue()
	if r.to != nil && r.to.last != nil {
		r.to.last.then = append(r.to.last.then, r)
		return
	}
	r.proceed()
}

// arrived says that the reply to what the request has sent last is in, or will not come. It returns the requests that
// have waited for it.
func (r *request) arrived() (then []*request) {
	if r.to != nil && r.to.last == r {
		r.to.last = nil
	}
	then, r.then = r.then, nil
	return then
}

// proceedAll goes on with requests that have waited for their turn.
func proceedAll(list []*request) {
	for _, r := range list {
		r.proceed()
	}
}

// proceed goes on with a request that has been refused.
func (r *request) proceed() {
	s := r.s
	switch {
	case s.out.Gone():
	case r.state == overtaken:
		r.fail()
	case s.queues[r.subject()][0] != r:
		r.state = inQueue
	case r.awaitsView:
		s.awaitView(r)
	default:
		r.redirect()
	}
}

// awaitView has the request sent again when the view has been refreshed. The first one's number of attempts says how
// soon.
func (s *Session) awaitView(r *request) {
	s.resting = append(s.resting, r)
	if len(s.resting) > 1 {
		return
	}
	s.Later(r.target, r.attempts.Pause(), func() {
		list := s.resting
		s.resting = nil
		for _, r := range list {
			r.awaitsView = false
			r.proceed()
		}
	})
}

// redirect sends the request again. All others of its key that were on their way have been answered, so it follows the
// newest view.
func (r *request) redirect() {
	s := r.s
	switch {
	case r.bound == toHeir: // the session's view is the one by which its node was chosen
		if heir := s.view.Heir(string(r.target), s.cluster.View()); heir != nil {
			r.target = topology.Node(heir.ID)
		}
	case r.bound == toSlot && !r.asking:
		r.target = s.successor(r)
	}
	if s.serverAt(r.target).last == nil {
		s.leaveLanes(func(at upstream.Node) bool { return at == r.target }) // the lane may be closed for good
	}
	r.depart()
}

// successor is the owner of a request's slot. A view may be older than a refusal, by a server that has not heard of the
// change. Then it is the server that the refusal names.
func (s *Session) successor(r *request) topology.Node {
	view := s.cluster.View()
	if r.slot < 0 {
		return s.anyServer()
	}
	at := ownerIn(view, r.slot)
	if at == r.target && r.moved != topology.Any && view.Server(string(r.moved)) != nil {
		return r.moved
	}
	return at
}

// settle goes on with the queue of the request's key when its reply is final. If it was carried out, the requests
// before it in the queue are not sent again, and if there are none, those behind it follow it to its server.
func (r *request) settle() {
	s := r.s
	queue, waits := s.queues[r.subject()]
	if !waits {
		r.finish()
		return
	}
	i, in := place(queue, r)
	about, done, node, asking := r.subject(), r.state != givenUp, r.target, r.asking
	r.finish()
	if !done || i > 0 {
		for _, one := range queue[:i] {
			if done && one.state == awaitsTurn {
				one.state = overtaken
			}
		}
		switch {
		case in && i == 0: // as a rule; the others are not copied
			queue[0] = nil
			queue = queue[1:]
		case in:
			queue = slices.Delete(queue, i, i+1)
		}
		s.keepQueue(about, queue)
		if len(queue) > 0 && queue[0].state == inQueue {
			queue[0].proceed()
		}
		return
	}
	s.keepQueue(about, nil)
	if in {
		queue = queue[1:]
	}
	for _, one := range queue {
		if one.state == inQueue {
			one.target, one.asking, one.awaitsView = node, asking, false
			one.follow()
		} else {
			one.enqueue()
		}
	}
}

// fail makes the refusal the reply to the client.
func (r *request) fail() {
	r.giveUp()
	s, at, answered := r.s, r.at, r.pass(r.at, r.failed, 1, false)
	r.settle()
	s.Answered(at, answered)
}
