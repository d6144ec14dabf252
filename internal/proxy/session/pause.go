package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster the commands of a key take effect in the order sent. The session sends them to one server, the
// owner of the slot in its view, on one connection, and takes the next view when nothing is on its way. A server that
// has lost a key refuses each of its commands from then on. So there is nothing to do before the first refusal. Then
// the session pauses:
//
//   - It reads nothing new, and waits for the replies to all that is on its way.
//   - Of each key the first request that was refused is sent again, alone. The keys do not wait for each other.
//   - When it is answered by anything but a refusal, the others of its key follow on that connection, in their order.
//   - When all have been answered, the session reads on.
//
// A server may refuse one request and carry out the next one of the key: its data has just been loaded, or the slot has
// come back. Then the client gets the refusal, and the request is not sent again. After failover-wait the client gets
// the refusals of all that is left.
//
// Keys are told apart by a hash, so a request keeps no copy of its key. Commands of several keys are sent alone: while
// a slot moves, some of its keys are at one server and some at the other.

// A retrial is a pause, in which a session sends refused requests again.
type retrial struct {
	s        *Session
	chains   map[subject]*chain
	all      []*chain // in the order of their first refusals
	retries  bool     // what was on its way at the first refusal has been answered
	attempts topology.Attempts
	resting  []*chain // wait for a new view
}

// A chain is the requests of one key that have been refused.
type chain struct {
	*retrial
	about   subject
	refused []*request // in the order of the commands
	sent    int        // those of the chain that are on their way again
}

// subject is what requests concern whose order counts: a key.
type subject struct {
	slot int
	key  uint64 // 0: there is none, or several
}

// chainOf is the chain of a request that has been refused. The session pauses from then on.
func (s *Session) chainOf(r *request) *chain {
	if s.pause == nil {
		s.pause = &retrial{s: s, chains: map[subject]*chain{}}
	}
	if s.wait == waitNone || s.wait == waitTurn {
		s.wait = waitQuiet // the refused requests have no answers yet
	}
	p := s.pause
	c := p.chains[r.subject()]
	if c == nil {
		c = &chain{retrial: p, about: r.subject()}
		p.chains[c.about] = c
		p.all = append(p.all, c)
	}
	return c
}

// hold puts a request, which has been refused, to its place.
func (c *chain) hold(r *request) {
	r.chain = c
	i, _ := slices.BinarySearchFunc(c.refused, r.at, func(one *request, at reply.ID) int { return int(one.at) - int(at) })
	c.refused = slices.Insert(c.refused, i, r)
}

// proceed begins to send refused requests again when all that was on its way has been answered.
func (s *Session) proceed() {
	p := s.pause
	if p == nil || p.retries || s.sending > 0 {
		return
	}
	p.retries = true
	for _, c := range p.all {
		c.next()
	}
	p.all = nil
}

// over reports whether the session no longer sends these requests.
func (p *retrial) over() bool { return p.s.pause != p || p.s.out.Gone() }

// next sends the first request of the chain again, or ends the chain. None of it is on its way.
func (c *chain) next() {
	switch {
	case c.over():
	case len(c.refused) == 0:
		if delete(c.chains, c.about); len(c.chains) == 0 {
			c.s.pause = nil
		}
	case c.refused[0].awaitsView:
		c.rest()
	default:
		r := c.refused[0]
		c.refused = c.refused[1:]
		r.redirect()
	}
}

// rest has the chain go on when the view has been refreshed, unless that has been tried for failover-wait. The number
// of attempts says how soon.
func (c *chain) rest() {
	p, s := c.retrial, c.s
	if len(p.resting) == 0 {
		within := s.cluster.FailoverWait()
		if p.attempts.Waited(within); !p.attempts.Refused(within) && !(s.holds() && s.proxy.Upstream.Away()) {
			c.failBefore(len(c.refused))
			c.next()
			return
		}
		s.Later(c.refused[0].target, p.attempts.Pause(), p.wake)
	}
	p.resting = append(p.resting, c)
}

// wake ends the rest of chains.
func (p *retrial) wake() {
	list := p.resting
	p.resting = nil
	p.attempts.Sent()
	for _, c := range list {
		if !p.over() {
			c.refused[0].awaitsView = false
			c.next()
		}
	}
}

// failBefore makes the refusals of the first n requests the replies to the client.
func (c *chain) failBefore(n int) {
	failed := c.refused[:n]
	c.refused = c.refused[n:]
	for i, r := range failed {
		if c.over() {
			c.refused = failed[i:] // dropRequests has not seen them
			c.drop()
			return
		}
		r.fail()
	}
}

// settled goes on behind a request that has its final reply. done: it has been carried out.
func (c *chain) settled(r *request, done bool) {
	n := len(c.refused)
	if done {
		n, _ = slices.BinarySearchFunc(c.refused, r.at, func(one *request, at reply.ID) int { return int(one.at) - int(at) })
	}
	if c.failBefore(n); !c.retries || c.sent > 0 || c.over() {
		return
	}
	rest := c.refused
	c.refused = nil
	c.sent++ // the chain does not go on before all are sent
	for _, one := range rest {
		one.target, one.asking, one.awaitsView = r.target, r.asking, false
	}
	for i, one := range rest {
		if c.over() {
			c.refused = rest[i:]
			c.drop()
			return
		}
		one.depart()
	}
	if c.sent--; c.sent == 0 {
		c.next()
	}
}

// drop gives up the requests of the chain, whose session has ended.
func (c *chain) drop() {
	s := c.s
	for _, r := range c.refused {
		s.out.Slots.Answer(r.at, 1)
		s.sentBytes -= len(r.raw)
		if r.h != nil {
			r.h.Lost(r.at, 1, false)
		}
	}
	c.refused = nil
}

// dropRequests gives up what a session that has ended will not send again.
func (s *Session) dropRequests() {
	if p := s.pause; p != nil {
		s.pause = nil
		for _, c := range p.chains {
			c.drop()
		}
	}
}

// redirect sends the request again. No other of its key is on its way, so it follows the newest view.
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
	if s.sending == 0 {
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
