package cluster

import (
	"slices"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Parcel is a command, or a part of one, on its way to a server of a cluster. It handles its own reply: a server may
// refuse it. Then it is sent again, in the order of its key (pause.go).
//
// Only what has certainly not run is sent again: a server refused it in Redis's own words, or it has not been written.
// It goes to a server of the view, or nowhere. A script that answers with such words after it has run is run again.
//
// A server that refuses a command may know more than the refreshed view. If the view still names that server, the
// command goes to the one that the refusal names.
//
// Parcels are recycled.
type Parcel struct {
	command.Aim
	Bound Bond
	Tx    int // it is a transaction: the number of replies before that to EXEC

	route *Route
	row   *command.Row
	raw   []byte // the command
	own   []byte // space for a copy of it
	once  bool   // it was made together with others, and is not recycled

	h      reply.Handler // of other replies than refusals; nil: they pass to the client
	place  reply.ID
	lane   *upstream.Lane // by which it was sent last; nil: no server was known
	ahead  ahead          // the replies that come first
	failed failure

	// Refusals.
	chain      *chain        // of its key, since it has been refused; nil: it has not
	awaitsView bool          // it is not sent again before there is a new view
	moved      topology.Node // the server that serves its slot, as the last one that refused it says; Any: it names none
}

// A Bond says which server a parcel is for.
type Bond uint8

// The bonds.
const (
	ToSlot   Bond = iota // the one that serves its slot; any one if it has no slot
	ToHeir               // its target, or the replica that has been promoted in the target's place
	ToServer             // its target, whatever happens
)

// Parcel begins a parcel for a command, whose bytes it takes over.
func (c *Route) Parcel(row *command.Row, raw []byte, to command.Aim) *Parcel {
	p := c.empty()
	p.row, p.raw, p.Aim = row, raw, to
	return p
}

// Copied is Parcel for a command whose bytes belong to others.
func (c *Route) Copied(row *command.Row, raw []byte, to command.Aim) *Parcel {
	p := c.empty()
	p.own = append(p.own[:0], raw...)
	p.row, p.raw, p.Aim = row, p.own, to
	return p
}

func (c *Route) empty() (p *Parcel) {
	if last := len(c.spare) - 1; last >= 0 {
		p, c.spare = c.spare[last], c.spare[:last]
		return p
	}
	return &Parcel{route: c}
}

// maxSpare bounds the parcels that an idle session keeps, and the bytes that each keeps.
const maxSpare, maxSpareRaw = 32, 512

// A Batch makes parcels that would not all be kept.
type Batch struct {
	route *Route
	more  []Parcel
}

// Batch is for n parcels.
func (c *Route) Batch(n int) Batch { return Batch{c, make([]Parcel, max(0, n-maxSpare))} }

// Parcel is that of the Route.
func (b *Batch) Parcel(row *command.Row, raw []byte, to command.Aim) *Parcel {
	if len(b.more) == 0 {
		return b.route.Parcel(row, raw, to)
	}
	p := &b.more[0]
	b.more = b.more[1:]
	*p = Parcel{route: b.route, row: row, raw: raw, Aim: to, once: true}
	return p
}

// release ends the life of a parcel.
func (p *Parcel) release() {
	if c := p.route; !p.once && len(c.spare) < maxSpare && cap(p.own) <= maxSpareRaw {
		*p = Parcel{route: c, own: p.own[:0], failed: failure{words: p.failed.words[:0]}}
		c.spare = append(c.spare, p)
	}
}

// subject is what the command concerns if its order counts.
func (p *Parcel) subject() subject { return subject{p.Slot, p.Key} }

// Post sends the parcel to its server. h handles its reply; nil: it passes to the client.
func (p *Parcel) Post(h reply.Handler) {
	p.h = h
	p.route.bytes += len(p.raw)
	p.place = p.route.Host.Expect(p.route.Conn(p.row, p.At), p)
	p.depart()
}

// depart sends the parcel to its server, behind an ASKING if need be.
func (p *Parcel) depart() {
	p.failed.begun, p.failed.words = false, p.failed.words[:0]
	p.route.sending++
	if c := p.chain; c != nil {
		c.sent++
	}
	p.ahead = newAhead(p.Asking, p.Tx)
	raw, n := p.raw, 1+p.Tx
	if p.Asking {
		raw, n = slices.Concat(command.Asking, raw), n+1
	}
	p.lane = p.route.laneTo(p.row, p.At)
	p.route.Host.Transmit(p.lane, raw, p.place, n)
}

// Take implements reply.Handler.
func (p *Parcel) Take(at reply.ID, b []byte, n int, more bool) int {
	b, n = p.ahead.strip(b, n)
	switch ran, over := p.ahead.ranAlone(); {
	case ran:
		if p.route.Host.Abandon(); over {
			p.arrives()
			p.Lost(at, 1, true)
			return 1
		}
		return 0
	case len(b) == 0:
		return 0
	}
	if b = p.failed.take(b, more); b == nil {
		return 0
	}
	if more {
		return p.pass(at, b, n, more)
	}
	c := p.route
	p.arrives()
	n = p.end(at, b, n)
	c.proceed()
	return n
}

// arrives says that the reply to what was sent last is in, or will not come.
func (p *Parcel) arrives() {
	p.route.sending--
	if c := p.chain; c != nil {
		c.sent--
	}
}

// end takes the end of the reply.
func (p *Parcel) end(at reply.ID, b []byte, n int) int {
	if f := &p.failed; len(f.words) > 0 {
		if p.Tx > 0 {
			f.words = append(f.words[:0], p.ahead.judge(p.Slot, f.words)...)
		}
		if p.sendAgain() {
			return 0
		}
		b = f.words
	}
	if n = p.pass(at, b, n, false); n > 0 {
		p.settle(true)
	}
	return n
}

// settle ends a parcel that has its final reply, and goes on with the others of its key. done: it has been carried out.
func (p *Parcel) settle(done bool) {
	c := p.chain
	if c == nil && p.route.pause != nil {
		c = p.route.pause.chains[p.subject()]
	}
	p.route.bytes -= len(p.raw)
	if c != nil && !c.over() {
		c.settled(p, done)
	}
	p.release()
}

// fail makes the refusal the reply to the client.
func (p *Parcel) fail() {
	host, at := p.route.Host, p.place
	p.route.bytes -= len(p.raw)
	switch {
	case len(p.failed.words) > 0:
		p.giveUp()
		p.pass(at, p.failed.words, 1, false)
	case host.Refusal() == nil:
		host.GiveUp()
		fallthrough
	default:
		p.miss(false)
	}
	p.release()
	host.Answered(at, 1)
}

// miss says that the parcel has no reply.
func (p *Parcel) miss(sent bool) {
	if p.h != nil {
		p.h.Lost(p.place, 1, sent)
	} else {
		p.route.Host.Refuse(p.place, 1)
	}
}

// By implements reply.Sent: it is the lane by which the parcel was sent last.
func (p *Parcel) By() upstream.Connection { return p.lane }

// Again implements reply.Sent. The other words go to the server that has answered.
func (p *Parcel) Again(_ reply.ID, raw []byte) {
	p.route.bytes += len(raw) - len(p.raw)
	p.own = append(p.own[:0], raw...)
	p.raw = p.own
	p.depart()
}

// pass hands bytes of the reply on.
func (p *Parcel) pass(at reply.ID, b []byte, n int, more bool) int {
	if p.h != nil {
		return p.h.Take(at, b, n, more)
	}
	p.route.Host.Pass(at, b, more)
	return n
}

// sendAgain has the parcel sent again if the error that it was answered with says that it has not run.
func (p *Parcel) sendAgain() bool {
	why := topology.ReadRefusal(p.failed.words)
	if !why.Concerns(p.Slot) || p.route.Host.Gone() {
		return false
	}
	asked, first := p.At, p.chain == nil
	p.GoTo(p.route.NoteRefusal(why, asked))
	p.moved = topology.Any
	if n := p.route.Servers.View().Named(why, asked); n != nil {
		p.moved = topology.Node(n.ID)
	}
	// After one redirection it follows at once: the session's view may change later.
	p.awaitsView = !p.Asking && (p.moved == topology.Any || p.moved == p.At || p.Bound != ToSlot || !first)
	p.refused()
	return true
}

// refused has the parcel sent again when its turn comes.
func (p *Parcel) refused() {
	c := p.route.chainOf(p)
	if c.hold(p); c.retries && c.sent == 0 {
		c.next()
	}
}

// Kept says that the parcel gets no reply; sent: it may have run. It reports whether it is sent again.
func (p *Parcel) Kept(sent bool) bool {
	host := p.route.Host
	if p.At != topology.Any {
		p.route.turnTo(p.At)
	}
	p.arrives()
	if sent || host.Gone() || host.Patience() == None || p.lane != nil && p.lane.Hopeless() {
		return false
	}
	p.failed.words, p.awaitsView, p.Asking = p.failed.words[:0], true, false
	p.refused()
	p.route.proceed()
	return true
}

// Asker is the handler of the reply.
func (p *Parcel) Asker() reply.Handler { return p.h }

// Lost implements reply.Handler.
func (p *Parcel) Lost(_ reply.ID, _ int, sent bool) {
	c := p.route
	p.miss(sent)
	p.settle(false)
	c.proceed()
}

// giveUp says that the parcel is not sent again. The client knows no other servers, so the refusal does not name one.
func (p *Parcel) giveUp() {
	f := &p.failed
	switch why := topology.ReadRefusal(f.words); {
	case why.Reason == topology.TryLate:
	case why.Reason == topology.Asking && p.route.Servers.View().Named(why, p.At) != nil:
		// All its keys have left, but the slot has not: a lock command is sent until it has.
		f.words = append(f.words[:0], TryAgain...)
	default:
		f.words = append(f.words[:0], clusterDown...)
	}
	if p.Tx > 0 {
		f.words = reply.Aborted(f.words)
	}
}

// TryAgain is Redis's refusal of a command while its slot moves.
var TryAgain = resp.AppendRawError(nil, "TRYAGAIN Multiple keys request during rehashing of slot")

var (
	_ reply.Handler = (*Parcel)(nil)
	_ reply.Sent    = (*Parcel)(nil)
)
