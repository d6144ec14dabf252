package cluster

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

var noCluster = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")

// scatter routes a command that goes to several servers of the cluster, and one that only a server without a cluster
// can answer as the client expects.
func (c *Route) scatter(r *command.Request) command.Decision {
	switch {
	case r.Policy == command.Shared && r.Key != 0: // of one key, and so for its server
		return command.Undecided
	case c.absent(r):
		return command.Decided(c.Host.AwaitQuiet() && c.Host.Answer(r, noCluster))
	case r.Row.Name == "scan":
		return c.scan(r)
	case r.Policy == command.Lock && !c.Host.AwaitQuiet():
		return command.Postponed
	}
	if refusal := c.impossible(r); refusal != nil {
		return command.Decided(c.Host.AwaitQuiet() && c.Host.Answer(r, refusal))
	}
	if r.IsLong() && scatter.Divides(r.Row.Name) {
		return command.Decided(c.Host.AwaitQuiet() && c.divideAside(r))
	}
	if parts, join := scatter.Split(r.Row.Name, r.Args); parts != nil {
		return command.Decided(c.Host.AwaitQuiet() && c.sendParts(r, parts, join))
	}
	if command.IsOwnInfo(r.Args) {
		return command.Undecided
	}
	if join := scatter.Everywhere(r.Row.Name, command.Keyword(r.Args, 1), r.Args); join != nil {
		return command.Decided(c.Host.AwaitQuiet() && c.everywhere(r, join))
	}
	return command.Undecided
}

// absent reports whether the command being routed is refused by a server that is no part of a cluster.
func (c *Route) absent(r *command.Request) bool {
	switch r.Row.Name {
	case "cluster":
		return len(r.Args) > 1
	case "readonly", "readwrite", "asking":
		return true
	}
	return false
}

// impossible is the refusal of a command whose state would be that of one server; nil: it has none.
func (c *Route) impossible(r *command.Request) []byte {
	switch r.Policy {
	case command.PinForever, command.PinRaw, command.Replication:
		if title := r.Row.TitleOf(r.Raw); title != "" {
			return resp.AppendError(nil, resp.Err, title+" is not available in front of a cluster")
		}
	case command.PinAfterWrite:
		return resp.AppendError(nil, resp.Err, strings.ToUpper(r.Row.Name)+
			" is not available in front of a cluster: LOCK ... SYNC n waits for replicas")
	default:
	}
	return nil
}

// gather begins a command of n parts. Nothing is outstanding.
func (c *Route) gather(r *command.Request, n int, join scatter.Join) *reply.Gathering {
	c.Host.AwaitReply()
	return reply.Gather(c.Host, c.Host.Hold(n), r.Muted, n, join)
}

// sendParts sends a command in parts. Nothing is outstanding.
func (c *Route) sendParts(r *command.Request, parts []scatter.Part, join scatter.Join) bool {
	g := c.gather(r, len(parts), join)
	c.postParts(r.Row, parts, g, 0)
	return true
}

// everywhere sends a command to all servers. Nothing is outstanding.
func (c *Route) everywhere(r *command.Request, join scatter.Join) bool {
	list := c.View.Nodes()
	if len(list) == 0 {
		return c.notSent(r)
	}
	together := join
	if done := c.Host.PauseOf(r); done != nil {
		together = func(replies [][]byte) []byte {
			reply := join(replies)
			done(reply)
			return reply
		}
	}
	g := c.gather(r, len(list), together)
	for i, node := range list { // parts without a slot, and without an order among themselves
		p := c.Copied(r.Row, r.Raw, command.Aim{Slot: -2 - i, At: upstream.Node(node.ID)})
		p.Bound = ToHeir
		p.Post(g.Part(i))
	}
	return true
}

// notSent ends a command for which no server is known. It returns true.
func (c *Route) notSent(r *command.Request) bool {
	c.Host.Transmit(nil, nil, c.Host.Expect(nil, reply.Passing(r.Muted)), 1)
	return true
}

// scan sends a SCAN to the server that its cursor names.
func (c *Route) scan(r *command.Request) command.Decision {
	if len(r.Args) < 2 {
		return command.Undecided
	}
	if !c.Host.AwaitQuiet() {
		return command.Postponed
	}
	view := c.View
	if len(view.Nodes()) == 0 {
		return command.Decided(c.notSent(r))
	}
	cursor, ok := scatter.ReadCursor(r.Args[1], view)
	if !ok {
		return command.Undecided
	}
	node, own := cursor.At(view)
	p := c.Parcel(r.Row, scatter.WithCursor(r.Args, own), command.Aim{Slot: -1, At: upstream.Node(node.ID)})
	p.Bound = ToServer
	p.Post(&reply.Reply{
		Session: c.Host, Muted: r.Muted, Replace: func(page []byte) []byte { return cursor.Follow(view, page) },
	})
	return command.CarriedOut
}

// postParts sends parts of a command, whose bytes it takes over, to the owners of their slots. first is the number of
// the first part.
func (c *Route) postParts(of *command.Row, parts []scatter.Part, replies *reply.Gathering, first int) {
	batch := c.Batch(len(parts))
	for i, part := range parts {
		to := command.Aim{Slot: part.Slot, At: c.OwnerOf(part.Slot)}
		batch.Parcel(of, part.Raw, to).Post(replies.Part(first + i))
	}
}

// longParts are the parts of a command of very many keys. A client chooses the number of keys. So the command is
// divided without the session's lock, and its parts are sent in slices.
type longParts struct {
	*Route
	of    *command.Request
	at    reply.ID // of the joined reply
	reply *reply.Gathering
	parts []scatter.Part
	sent  int // of them
}

// divideAside has the command being routed divided aside, and its parts sent, whose joined reply has a slot. The
// session waits for the reply meanwhile. Nothing is outstanding.
func (c *Route) divideAside(r *command.Request) bool {
	c.Host.AwaitReply()
	c.Host.Held(len(r.Raw))
	r.Keep()
	p := &longParts{Route: c, of: r, at: c.Host.Hold(0)}
	c.Host.Aside(p.cut)
	return true
}

// cut makes the parts. Requires no locks.
func (p *longParts) cut() (then func()) {
	r := p.of
	args := resp.Split(r.Raw, nil)
	if scatter.Exceeds(r.Row.Name, args) {
		return p.refuse
	}
	list, join := scatter.Split(r.Row.Name, args)
	if list == nil { // all keys are in one slot
		list = []scatter.Part{{Raw: r.Raw, Slot: r.Slot}}
		join = func(replies [][]byte) []byte { return replies[0] }
	}
	r.Raw, r.Own, p.parts = nil, nil, list
	p.reply = reply.Gather(p.Host, p.at, r.Muted, len(list), join)
	return p.send
}

var tooManyKeys = resp.AppendRawError(nil,
	"CROSSSLOT at most "+strconv.Itoa(scatter.MostKeys)+" keys of several slots are possible")

// refuse answers a command of too many keys.
func (p *longParts) refuse() {
	p.Host.Held(0)
	if !p.of.Muted {
		p.Host.Put(p.at, tooManyKeys, false)
	}
	p.Host.Resume()
	p.Host.Answered(p.at, 1)
}

// sliceParts parts, or those with which there are more than sliceBytes bytes, are sent before others have their turn.
const sliceParts, sliceBytes = 512, 1 << 20

// send sends the next slice of the parts.
func (p *longParts) send() {
	first, bytes := p.sent, 0
	for end := min(first+sliceParts, len(p.parts)); p.sent < end && bytes < sliceBytes; p.sent++ {
		bytes += len(p.parts[p.sent].Raw)
	}
	p.postParts(p.of.Row, p.parts[first:p.sent], p.reply, first)
	if p.sent < len(p.parts) && !p.Host.Gone() {
		p.Host.Aside(func() func() { return p.send })
	}
}
