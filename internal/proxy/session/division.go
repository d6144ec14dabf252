package session

import (
	"bytes"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// A division is a command of very many keys on its way to the servers of its slots. A client chooses the number of
// keys. So the command is divided without the session's lock, and its parts are sent in slices.
type division struct {
	s     *Session
	name  string
	raw   []byte   // the command
	at    reply.ID // of the joined reply
	muted bool
	way   way
	reply *reply.Gathering
	parts []scatter.Part
	sent  int // of them
}

// divide has the command being routed divided aside, and its parts sent, whose joined reply has a slot. The session
// waits for the reply meanwhile. Nothing is outstanding.
func (s *Session) divide(row *command.Row, raw []byte) {
	s.wait, s.gathered = waitReply, len(raw)
	d := &division{s: s, name: row.Name, raw: bytes.Clone(raw), at: s.out.Slots.Hold(), muted: s.muted, way: s.way}
	s.Aside(d.cut)
}

// cut makes the parts. Requires no locks.
func (d *division) cut() (then func()) {
	list, join := scatter.Split(d.name, resp.Split(d.raw, nil))
	if list == nil { // all keys are in one slot
		list = []scatter.Part{{Raw: d.raw, Slot: d.way.slot}}
		join = func(replies [][]byte) []byte { return replies[0] }
	}
	d.raw, d.parts = nil, list
	d.reply = reply.Gather(d.s, d.at, d.muted, len(list), join)
	return d.send
}

// sliceParts parts, or those with which there are more than sliceBytes bytes, are sent before others have their turn.
const sliceParts, sliceBytes = 512, 1 << 20

// send sends the next slice of the parts.
func (d *division) send() {
	s := d.s
	s.way = d.way
	for end, bytes := min(d.sent+sliceParts, len(d.parts)), 0; d.sent < end && bytes < sliceBytes; d.sent++ {
		part := d.parts[d.sent]
		s.slot, s.target = part.Slot, s.ownerOf(part.Slot)
		s.send(part.Raw, d.reply.Part(d.sent))
		bytes += len(part.Raw)
	}
	if d.sent < len(d.parts) && !s.out.Gone() {
		s.Aside(func() func() { return d.send })
	}
}
