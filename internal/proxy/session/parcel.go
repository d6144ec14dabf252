package session

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A parcel is a command, or a part of one, on its way to a server of a cluster. It handles its own reply: a server may
// refuse it. Then it is sent again, in the order of its key (pause.go).
//
// Only what has certainly not run is sent again: a server refused it in Redis's own words, or it has not been written.
// It goes to a server of the view, or nowhere. A script that answers with such words after it has run is run again.
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the
// command goes to the one that the refusal names.
//
// Parcels are recycled.
type parcel struct {
	*cluster
	aim
	row   *command.Row
	raw   []byte // the command
	own   []byte // space for a copy of it
	bound bond
	tx    int  // it is a transaction: the number of replies before that to EXEC
	once  bool // it was made together with others, and is not recycled

	h      reply.Handler // of other replies than refusals; nil: they pass to the client
	place  reply.ID
	lane   *upstream.Lane // by which it was sent last; nil: no server was known
	ahead  reply.Ahead    // the replies that come first
	begun  bool           // bytes of the reply have come
	failed []byte         // the reply so far, if it is an error

	// Refusals.
	chain      *chain        // of its key, since it has been refused; nil: it has not
	awaitsView bool          // it is not sent again before there is a new view
	moved      topology.Node // the server that serves its slot, as the last one that refused it says; Any: it names none
}

// A bond says which server a parcel is for.
type bond uint8

const (
	toSlot   bond = iota // the one that serves its slot; any one if it has no slot
	toHeir               // its target, or the replica that has been promoted in the target's place
	toServer             // its target, whatever happens
)

// parcel begins a parcel for a command, whose bytes it takes over.
func (c *cluster) parcel(row *command.Row, raw []byte, to aim) *parcel {
	p := c.empty()
	p.row, p.raw, p.aim = row, raw, to
	return p
}

// copied is parcel for a command whose bytes belong to others.
func (c *cluster) copied(row *command.Row, raw []byte, to aim) *parcel {
	p := c.empty()
	p.own = append(p.own[:0], raw...)
	p.row, p.raw, p.aim = row, p.own, to
	return p
}

func (c *cluster) empty() (p *parcel) {
	if last := len(c.spare) - 1; last >= 0 {
		p, c.spare = c.spare[last], c.spare[:last]
		return p
	}
	return &parcel{cluster: c}
}

// release ends the life of a parcel.
func (p *parcel) release() {
	if c := p.cluster; !p.once && len(c.spare) < maxSpare && cap(p.own) <= maxSpareRaw {
		*p = parcel{cluster: c, own: p.own[:0], failed: p.failed[:0]}
		c.spare = append(c.spare, p)
	}
}

// subject is what the command concerns if its order counts.
func (p *parcel) subject() subject { return subject{p.slot, p.key} }

// post sends the parcel to its server. h handles its reply; nil: it passes to the client.
func (p *parcel) post(h reply.Handler) {
	s := p.s
	p.h = h
	p.sentBytes += len(p.raw)
	s.unanswered += slotCost
	p.place = s.out.Slots.Add(p.laneTo(p.row, p.at), p, 1)
	p.depart()
}

// depart sends the parcel to its server.
func (p *parcel) depart() {
	if p.at == topology.Any {
		p.lane = nil
		p.leaves()
		p.s.lose(p.place, 1, false)
		return
	}
	p.transmit()
}

// leaves says that the parcel is on its way.
func (p *parcel) leaves() {
	p.sending++
	if c := p.chain; c != nil {
		c.sent++
	}
}

// transmit appends the parcel to a lane, behind an ASKING if need be.
func (p *parcel) transmit() {
	p.begun, p.failed = false, p.failed[:0]
	p.leaves()
	p.ahead = reply.NewAhead(p.asking, p.tx)
	raw, n := p.raw, 1+p.tx
	if p.asking {
		raw, n = slices.Concat(command.Asking, raw), n+1
	}
	conn := p.laneTo(p.row, p.at)
	p.lane = p.s.lane
	p.s.transmit(conn, raw, p.place, n)
}

// Take implements reply.Handler.
func (p *parcel) Take(at reply.ID, b []byte, n int, more bool) int {
	b, n = p.ahead.Strip(b, n)
	switch ran, over := p.ahead.Ran(); {
	case ran:
		if p.s.abandon(); over {
			p.arrives()
			p.Lost(at, 1, true)
			return 1
		}
		return 0
	case len(b) == 0:
		return 0
	}
	if !p.begun && b[0] == '-' || len(p.failed) > 0 {
		p.failed = append(p.failed, b...)
		b = p.failed
	}
	p.begun = true
	switch {
	case more && len(p.failed) > reply.LongestRefusal:
		b, p.failed = p.failed, nil
		return p.pass(at, b, n, more)
	case more && len(p.failed) > 0:
		return 0
	case more:
		return p.pass(at, b, n, more)
	}
	c := p.cluster
	p.arrives()
	n = p.end(at, b, n)
	c.proceed()
	return n
}

// arrives says that the reply to what was sent last is in, or will not come.
func (p *parcel) arrives() {
	p.sending--
	if c := p.chain; c != nil {
		c.sent--
	}
}

// end takes the end of the reply.
func (p *parcel) end(at reply.ID, b []byte, n int) int {
	if len(p.failed) > 0 {
		if p.tx > 0 {
			p.failed = append(p.failed[:0], p.ahead.Judge(p.slot, p.failed)...)
		}
		if p.sendAgain() {
			return 0
		}
		b = p.failed
	}
	if n = p.pass(at, b, n, false); n > 0 {
		p.settle(true)
	}
	return n
}

// settle ends a parcel that has its final reply, and goes on with the others of its key. done: it has been carried out.
func (p *parcel) settle(done bool) {
	c := p.chain
	if c == nil && p.pause != nil {
		c = p.pause.chains[p.subject()]
	}
	p.sentBytes -= len(p.raw)
	if c != nil && !c.over() {
		c.settled(p, done)
	}
	p.release()
}

// fail makes the refusal the reply to the client.
func (p *parcel) fail() {
	s, at := p.s, p.place
	p.sentBytes -= len(p.raw)
	switch {
	case len(p.failed) > 0:
		p.giveUp()
		p.pass(at, p.failed, 1, false)
	case s.Refusal() == nil:
		s.giveUp()
		fallthrough
	default:
		p.miss(false)
	}
	p.release()
	s.Answered(at, 1)
}

// miss says that the parcel has no reply.
func (p *parcel) miss(sent bool) {
	if p.h != nil {
		p.h.Lost(p.place, 1, sent)
	} else {
		p.s.Refuse(p.place, 1)
	}
}

// by implements sentScript.
func (p *parcel) by() connection { return p.lane }

// again implements sentScript: other words go to the server that has answered.
func (p *parcel) again(_ reply.ID, raw []byte) {
	p.sentBytes += len(raw) - len(p.raw)
	p.own = append(p.own[:0], raw...)
	p.raw = p.own
	p.transmit()
}

// pass hands bytes of the reply on.
func (p *parcel) pass(at reply.ID, b []byte, n int, more bool) int {
	if p.h != nil {
		return p.h.Take(at, b, n, more)
	}
	p.s.Pass(at, b, more)
	return n
}

// sendAgain has the parcel sent again if the error that it was answered with says that it has not run.
func (p *parcel) sendAgain() bool {
	why := topology.ReadRefusal(p.failed)
	if !why.Concerns(p.slot) || p.s.out.Gone() {
		return false
	}
	asked, first := p.at, p.chain == nil
	p.goTo(p.noteRefusal(why, asked))
	p.moved = topology.Any
	if n := p.servers.View().Named(why, asked); n != nil {
		p.moved = topology.Node(n.ID)
	}
	// After one redirection it follows at once: the session's view may change later.
	p.awaitsView = !p.asking && (p.moved == topology.Any || p.moved == p.at || p.bound != toSlot || !first)
	p.refused()
	return true
}

// refused has the parcel sent again when its turn comes.
func (p *parcel) refused() {
	c := p.chainOf(p)
	if c.hold(p); c.retries && c.sent == 0 {
		c.next()
	}
}

// goTo has a command sent behind an ASKING to the server that has its key already; Any: there is none.
func (a *aim) goTo(asking topology.Node) {
	if a.asking = asking != topology.Any; a.asking {
		a.at = asking
	}
}

// kept implements keeper. A parcel that could not be sent is sent again.
func (p *parcel) kept(sent bool) bool {
	s := p.s
	if p.at != topology.Any {
		p.turnTo(p.at)
	}
	p.arrives()
	if sent || s.out.Gone() || s.stranded() || p.lane != nil && p.lane.Hopeless() {
		return false
	}
	p.failed, p.awaitsView, p.asking = p.failed[:0], true, false
	p.refused()
	p.proceed()
	return true
}

// asker implements keeper.
func (p *parcel) asker() reply.Handler { return p.h }

// Lost implements reply.Handler.
func (p *parcel) Lost(_ reply.ID, _ int, sent bool) {
	c := p.cluster
	p.miss(sent)
	p.settle(false)
	c.proceed()
}

// giveUp says that the parcel is not sent again. The client knows no other servers, so the refusal does not name one.
func (p *parcel) giveUp() {
	switch why := topology.ReadRefusal(p.failed); {
	case why.Reason == topology.TryLate:
	case why.Reason == topology.Asking && p.servers.View().Named(why, p.at) != nil:
		// All its keys have left, but the slot has not: a lock command is sent until it has.
		p.failed = append(p.failed[:0], tryAgain...)
	default:
		p.failed = append(p.failed[:0], reply.ClusterDown...)
	}
	if p.tx > 0 {
		p.failed = reply.Aborted(p.failed)
	}
}

var (
	_ reply.Handler = (*parcel)(nil)
	_ keeper        = (*parcel)(nil)
	_ sentScript    = (*parcel)(nil)
)
