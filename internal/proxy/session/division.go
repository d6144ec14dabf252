package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A division is a command of very many keys on its way to the servers of its slots. A client chooses the number of
// keys. So the command is divided without the session's lock, and its parts are sent in slices.
type division struct {
	of    *request
	at    reply.ID // of the joined reply
	reply *reply.Gathering
	parts []scatter.Part
	sent  int // of them
}

// divide has the command being routed divided aside, and its parts sent, whose joined reply has a slot. The session
// waits for the reply meanwhile. Nothing is outstanding.
func (s *Session) divide(r *request) {
	s.wait, s.gathered = waitReply, len(r.raw)
	r.keep()
	d := &division{of: r, at: s.out.Slots.Hold()}
	s.Aside(d.cut)
}

// cut makes the parts. Requires no locks.
func (d *division) cut() (then func()) {
	r := d.of
	list, join := scatter.Split(r.row.Name, resp.Split(r.own, nil))
	if list == nil { // all keys are in one slot
		list = []scatter.Part{{Raw: r.own, Slot: r.slot}}
		join = func(replies [][]byte) []byte { return replies[0] }
	}
	r.raw, r.own, d.parts = nil, nil, list
	d.reply = reply.Gather(r.s, d.at, r.muted, len(list), join)
	return d.send
}

// sliceParts parts, or those with which there are more than sliceBytes bytes, are sent before others have their turn.
const sliceParts, sliceBytes = 512, 1 << 20

// send sends the next slice of the parts.
func (d *division) send() {
	s := d.of.s
	for end, bytes := min(d.sent+sliceParts, len(d.parts)), 0; d.sent < end && bytes < sliceBytes; d.sent++ {
		part := d.parts[d.sent]
		d.of.part(part.Raw, part.Slot, s.ownerOf(part.Slot)).send(d.reply.Part(d.sent))
		bytes += len(part.Raw)
	}
	if d.sent < len(d.parts) && !s.out.Gone() {
		s.Aside(func() func() { return d.send })
	}
}
