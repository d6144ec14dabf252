package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// In front of a cluster the commands of a key take effect in the order sent. The session sends them to one server, the
// owner of the slot in its view, on one connection, and takes the next view when nothing is on its way. A server that
// has lost a key refuses each of its commands from then on. So there is nothing to do before the first refusal. Then
// the session pauses:
//
//   - It reads nothing new, and waits for the replies to all that is on its way.
//   - Of each key the first command that was refused is sent again, alone. The keys do not wait for each other.
//   - When it is answered by anything but a refusal, the others of its key follow on that connection, in their order.
//   - When all have been answered, the session reads on.
//
// A server may refuse one request and carry out the next one of the key: its data has just been loaded, or the slot has
// come back. Then the client gets the refusal, and the command is not sent again. After failover-wait the client gets
// the refusals of all that is left.
//
// Keys are told apart by a hash, so a parcel keeps no copy of its key. Commands of several keys are sent alone: while
// a slot moves, some of its keys are at one server and some at the other.

// A pause is the time in which a session sends refused parcels again.
type pause struct {
	*Route
	chains   map[subject]*chain
	all      []*chain // in the order of their first refusals
	retries  bool     // what was on its way at the first refusal has been answered
	attempts topology.Attempts
	resting  []*chain // wait for a new view
}

// A chain is the parcels of one key that have been refused.
type chain struct {
	*pause
	about   subject
	refused []*Parcel // in the order of the commands
	sent    int       // those of the chain that are on their way again
}

// subject is what commands concern whose order counts: a key.
type subject struct {
	slot int
	key  uint64 // 0: there is none, or several
}

// chainOf is the chain of a parcel that has been refused. The session pauses from then on.
func (c *Route) chainOf(p *Parcel) *chain {
	if c.pause == nil {
		c.pause = &pause{Route: c, chains: map[subject]*chain{}}
	}
	c.Host.AwaitQuiet()
	now := c.pause
	of := now.chains[p.subject()]
	if of == nil {
		of = &chain{pause: now, about: p.subject()}
		now.chains[of.about] = of
		now.all = append(now.all, of)
	}
	return of
}

// hold puts a parcel, which has been refused, to its place.
func (c *chain) hold(p *Parcel) {
	p.chain = c
	c.refused = slices.Insert(c.refused, c.index(p), p)
}

// index is the number of refused parcels before this one in the order of the commands.
func (c *chain) index(p *Parcel) int {
	i, _ := slices.BinarySearchFunc(c.refused, p.place, func(one *Parcel, at reply.ID) int { return int(one.place) - int(at) })
	return i
}

// proceed begins to send refused parcels again when all that was on its way has been answered.
func (c *Route) proceed() {
	now := c.pause
	if now == nil || now.retries || c.sending > 0 {
		return
	}
	now.retries = true
	for _, of := range now.all {
		of.next()
	}
	now.all = nil
}

// over reports whether the session no longer sends these parcels.
func (p *pause) over() bool { return p.Route.pause != p || p.Host.Gone() }

// next sends the first parcel of the chain again, or ends the chain. None of it is on its way.
func (c *chain) next() {
	switch {
	case c.over():
	case len(c.refused) == 0:
		if delete(c.chains, c.about); len(c.chains) == 0 {
			c.Route.pause = nil
		}
	case c.refused[0].awaitsView:
		c.rest()
	default:
		p := c.refused[0]
		c.refused = c.refused[1:]
		p.redirect()
	}
}

// rest has the chain go on when the view has been refreshed, unless that has been tried for failover-wait. The number
// of attempts says how soon.
func (c *chain) rest() {
	p := c.pause
	if len(p.resting) == 0 {
		within := c.Servers.FailoverWait()
		if p.attempts.Waited(within); !p.attempts.Refused(within) && c.Host.Patience() != Endless {
			c.failBefore(len(c.refused))
			c.next()
			return
		}
		c.Later(c.refused[0].At, p.attempts.Pause(), p.wake)
	}
	p.resting = append(p.resting, c)
}

// wake ends the rest of chains.
func (p *pause) wake() {
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

// failBefore makes the refusals of the first n parcels the replies to the client.
func (c *chain) failBefore(n int) {
	failed := c.refused[:n]
	c.refused = c.refused[n:]
	for i, p := range failed {
		if c.over() {
			c.giveBack(failed[i:])
			return
		}
		p.fail()
	}
}

// settled goes on behind a parcel that has its final reply. done: it has been carried out.
func (c *chain) settled(p *Parcel, done bool) {
	n := len(c.refused)
	if done {
		n = c.index(p)
	}
	if c.failBefore(n); !c.retries || c.sent > 0 || c.over() {
		return
	}
	rest := c.refused
	c.refused = nil
	c.sent++ // the chain does not go on before all are sent
	for i, one := range rest {
		if c.over() {
			c.giveBack(rest[i:])
			return
		}
		one.At, one.Asking, one.awaitsView = p.At, p.Asking, false
		one.depart()
	}
	if c.sent--; c.sent == 0 {
		c.next()
	}
}

// giveBack gives up parcels whose session has ended.
func (c *Route) giveBack(list []*Parcel) {
	for _, p := range list {
		c.bytes -= len(p.raw)
		if p.h != nil {
			p.h.Lost(p.place, 1, false)
		}
		c.Host.Answered(p.place, 1)
	}
}

// giveUp gives up what a session that has ended will not send again.
func (c *Route) giveUp() {
	if now := c.pause; now != nil {
		c.pause = nil
		for _, of := range now.chains {
			c.giveBack(of.refused)
			of.refused = nil
		}
	}
}

// redirect sends the parcel again. No other of its key is on its way, so it follows the newest view.
func (p *Parcel) redirect() {
	c := p.route
	switch {
	case p.Bound == ToHeir: // the session's view is the one by which its server was chosen
		if heir := c.View.Heir(string(p.At), c.Servers.View()); heir != nil {
			p.At = topology.Node(heir.ID)
		}
	case p.Bound == ToSlot && !p.Asking:
		p.At = p.successor()
	}
	if c.sending == 0 {
		c.leaveLanes(func(at topology.Node) bool { return at == p.At }) // the lane may be closed for good
	}
	p.depart()
}

// successor is the owner of a parcel's slot. A view may be older than a refusal, by a server that has not heard of the
// change. Then it is the server that the refusal names.
func (p *Parcel) successor() topology.Node {
	view := p.route.Servers.View()
	if p.Slot < 0 {
		return p.route.AnyServer()
	}
	at := OwnerIn(view, p.Slot)
	if at == p.At && p.moved != topology.Any && view.Server(string(p.moved)) != nil {
		return p.moved
	}
	return at
}
