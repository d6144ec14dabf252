package session

import (
	"strconv"
	"strings"

	"github.com/lockproxy/lockproxy/internal/proxy/cluster"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

var noCluster = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")

// scatter routes a command that goes to several servers of the cluster, and one that only a server without a cluster
// can answer as the client expects.
func (c *shards) scatter(r *request) decision {
	s := c.s
	switch {
	case r.Policy == command.Shared && r.Key != 0: // of one key, and so for its server
		return undecided
	case c.absent(r):
		return decided(s.awaitQuiet() && s.answer(r, noCluster))
	case r.Row.Name == "scan":
		return c.scan(r)
	case r.Policy == command.Lock && !s.awaitQuiet():
		return postponed
	}
	if refusal := c.impossible(r); refusal != nil {
		return decided(s.awaitQuiet() && s.answer(r, refusal))
	}
	if isLong(r.Raw) && scatter.Divides(r.Row.Name) {
		return decided(s.awaitQuiet() && c.divideAside(r))
	}
	if parts, join := scatter.Split(r.Row.Name, r.Args); parts != nil {
		return decided(s.awaitQuiet() && c.sendParts(r, parts, join))
	}
	if command.IsOwnInfo(r.Args) {
		return undecided
	}
	if join := scatter.Everywhere(r.Row.Name, command.Keyword(r.Args, 1), r.Args); join != nil {
		return decided(s.awaitQuiet() && c.everywhere(r, join))
	}
	return undecided
}

// absent reports whether the command being routed is refused by a server that is no part of a cluster.
func (c *shards) absent(r *request) bool {
	switch r.Row.Name {
	case "cluster":
		return len(r.Args) > 1
	case "readonly", "readwrite", "asking":
		return true
	}
	return false
}

// impossible is the refusal of a command whose state would be that of one server; nil: it has none.
func (c *shards) impossible(r *request) []byte {
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
func (c *shards) gather(r *request, n int, join scatter.Join) *reply.Gathering {
	s := c.s
	s.wait = waitReply
	s.out.Slots.Grow(1 + n)
	return reply.Gather(s, s.out.Slots.Hold(), r.Muted, n, join)
}

// sendParts sends a command in parts. Nothing is outstanding.
func (c *shards) sendParts(r *request, parts []scatter.Part, join scatter.Join) bool {
	g := c.gather(r, len(parts), join)
	c.postParts(r.Row, parts, g, 0)
	return true
}

// Of a command with more than manyArgs arguments only fewArgs are looked at, if these tell its way. A client chooses
// the number, and others wait meanwhile.
const manyArgs, fewArgs = 2048, 8

// isLong reports whether a command has more than manyArgs arguments. Each takes six bytes or more.
func isLong(raw []byte) bool { return len(raw) > 6*manyArgs && resp.Count(raw) > manyArgs }

// everywhere sends a command to all servers. Nothing is outstanding.
func (c *shards) everywhere(r *request, join scatter.Join) bool {
	list := c.View.Nodes()
	if len(list) == 0 {
		return c.s.notCarriedOut(r)
	}
	g := c.gather(r, len(list), join)
	if done := c.s.pauseOf(r); done != nil {
		g.Edit(func(reply []byte) []byte {
			done(reply)
			return reply
		})
	}
	for i, node := range list { // parts without a slot, and without an order among themselves
		p := c.Copied(r.Row, r.Raw, command.Aim{Slot: -2 - i, At: upstream.Node(node.ID)})
		p.Bound = cluster.ToHeir
		p.Post(g.Part(i))
	}
	return true
}

// scan sends a SCAN to the server that its cursor names.
func (c *shards) scan(r *request) decision {
	if len(r.Args) < 2 {
		return undecided
	}
	if !c.s.awaitQuiet() {
		return postponed
	}
	view := c.View
	if len(view.Nodes()) == 0 {
		return decided(c.s.notCarriedOut(r))
	}
	cursor, ok := scatter.ReadCursor(r.Args[1], view)
	if !ok {
		return undecided
	}
	node, own := cursor.At(view)
	p := c.Parcel(r.Row, scatter.WithCursor(r.Args, own), command.Aim{Slot: -1, At: upstream.Node(node.ID)})
	p.Bound = cluster.ToServer
	p.Post(&reply.Reply{
		Session: c.s, Muted: r.Muted, Replace: func(page []byte) []byte { return cursor.Follow(view, page) },
	})
	return carriedOut
}

// postParts sends parts of a command, whose bytes it takes over, to the owners of their slots. first is the number of
// the first part.
func (c *shards) postParts(of *command.Row, parts []scatter.Part, replies *reply.Gathering, first int) {
	batch := c.Batch(len(parts))
	for i, part := range parts {
		to := command.Aim{Slot: part.Slot, At: c.OwnerOf(part.Slot)}
		batch.Parcel(of, part.Raw, to).Post(replies.Part(first + i))
	}
}

// longParts are the parts of a command of very many keys. A client chooses the number of keys. So the command is
// divided without the session's lock, and its parts are sent in slices.
type longParts struct {
	*shards
	of    *request
	at    reply.ID // of the joined reply
	reply *reply.Gathering
	parts []scatter.Part
	sent  int // of them
}

// divideAside has the command being routed divided aside, and its parts sent, whose joined reply has a slot. The
// session waits for the reply meanwhile. Nothing is outstanding.
func (c *shards) divideAside(r *request) bool {
	s := c.s
	s.wait, s.gathered = waitReply, len(r.Raw)
	r.Keep()
	p := &longParts{shards: c, of: r, at: s.out.Slots.Hold()}
	s.Aside(p.cut)
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
	p.reply = reply.Gather(p.s, p.at, r.Muted, len(list), join)
	return p.send
}

var tooManyKeys = resp.AppendRawError(nil,
	"CROSSSLOT at most "+strconv.Itoa(scatter.MostKeys)+" keys of several slots are possible")

// refuse answers a command of too many keys.
func (p *longParts) refuse() {
	s := p.s
	s.gathered = 0
	if !p.of.Muted {
		s.out.put(p.at, tooManyKeys, false)
	}
	s.Resume()
	s.Answered(p.at, 1)
}

// sliceParts parts, or those with which there are more than sliceBytes bytes, are sent before others have their turn.
const sliceParts, sliceBytes = 512, 1 << 20

// send sends the next slice of the parts.
func (p *longParts) send() {
	s := p.s
	first, bytes := p.sent, 0
	for end := min(first+sliceParts, len(p.parts)); p.sent < end && bytes < sliceBytes; p.sent++ {
		bytes += len(p.parts[p.sent].Raw)
	}
	p.postParts(p.of.Row, p.parts[first:p.sent], p.reply, first)
	if p.sent < len(p.parts) && !s.out.Gone() {
		s.Aside(func() func() { return p.send })
	}
}
