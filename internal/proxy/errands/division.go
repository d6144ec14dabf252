package errands

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A division is a command of very many keys on its way to the servers of its slots. A client chooses the number of
// keys. So the command is divided without the session's lock, and its parts are sent in slices.
type division struct {
	of    *Errands
	name  string
	raw   []byte   // the command
	at    reply.ID // of the joined reply
	muted bool
	route Route
	reply *reply.Gathering
	parts []scatter.Part
	sent  int // of them
}

// Divide sends the command being routed, by its name in lower case, in parts, whose joined reply has a slot. The
// session waits for the reply meanwhile. The command belongs to the division.
func (n *Errands) Divide(name string, raw []byte, at reply.ID, muted bool) {
	d := &division{of: n, name: name, raw: raw, at: at, muted: muted, route: n.Route}
	n.session.Aside(d.cut)
}

// cut makes the parts. Requires no locks.
func (d *division) cut() (then func()) {
	list, join := scatter.Split(d.name, resp.Split(d.raw, nil))
	if list == nil { // all keys are in one slot
		list = []scatter.Part{{Raw: d.raw, Slot: d.route.Slot}}
		join = func(replies [][]byte) []byte { return replies[0] }
	}
	d.raw, d.parts = nil, list
	d.reply = reply.Gather(d.of.session, d.at, d.muted, len(list), join)
	return d.send
}

// sliceParts parts, or those with which there are more than sliceBytes bytes, are sent before others have their turn.
const sliceParts, sliceBytes = 512, 1 << 20

// send sends the next slice of the parts.
func (d *division) send() {
	n := d.of
	n.Route = d.route
	for end, bytes := min(d.sent+sliceParts, len(d.parts)), 0; d.sent < end && bytes < sliceBytes; d.sent++ {
		part := d.parts[d.sent]
		n.Slot, n.Target = part.Slot, n.Owner(part.Slot)
		n.Send(part.Raw, d.reply.Part(d.sent))
		bytes += len(part.Raw)
	}
	if d.sent < len(d.parts) && !n.session.Gone() {
		n.session.Aside(func() func() { return d.send })
	}
}
