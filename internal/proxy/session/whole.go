package session

import (
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

var noCluster = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")

// whole handles a command that concerns the cluster, not one server of it. handled is false for other commands. done is
// false if the command must wait.
func (s *Session) whole(r *request) (handled, done bool) {
	switch {
	case s.absent(r):
		return true, s.awaitQuiet() && r.answerWith(noCluster)
	case r.row.Name == "scan":
		return s.scan(r)
	case r.policy == command.Lock:
		return !s.awaitQuiet(), false
	case r.policy == command.PinAfterWrite && !s.awaitQuiet():
		return true, false
	case r.policy == command.PinAfterWrite && s.writesLost():
		return true, r.answerWith(writesInDoubt)
	}
	if refusal := s.impossible(r); refusal != nil {
		return true, s.awaitQuiet() && r.answerWith(refusal)
	}
	if isLong(r.raw) && scatter.Divides(r.row.Name) && !s.proxy.Settings.RefuseCrossSlot {
		if done = s.awaitQuiet(); done {
			s.divide(r)
		}
		return true, done
	}
	if split, join := scatter.Split(r.row.Name, r.args); split != nil && !s.proxy.Settings.RefuseCrossSlot {
		if !s.awaitQuiet() {
			return true, false
		}
		g := s.gather(r, len(split), join)
		for i, part := range split {
			r.part(part.Raw, part.Slot, s.ownerOf(part.Slot)).send(g.Part(i))
		}
		return true, true
	}
	if command.IsOwnInfo(r.args) {
		return false, false
	}
	if join := scatter.Everywhere(r.row.Name, command.Keyword(r.args, 1), r.args); join != nil {
		if !s.awaitQuiet() {
			return true, false
		}
		return true, s.everywhere(r, join)
	}
	return false, false
}

// absent reports whether the command being routed is refused by a server that is no part of a cluster.
func (s *Session) absent(r *request) bool {
	switch r.row.Name {
	case "cluster":
		return len(r.args) > 1
	case "readonly", "readwrite", "asking":
		return true
	}
	return false
}

// impossible is the refusal of a command whose state would be that of one server; nil: it has none.
func (s *Session) impossible(r *request) []byte {
	switch r.policy {
	case command.PinForever, command.PinRaw, command.Replication:
		if title := r.row.TitleOf(r.raw); title != "" {
			return resp.AppendError(nil, resp.Err, title+" is not available in front of a cluster")
		}
	default:
	}
	return nil
}

// gather begins a command of n parts. Nothing is outstanding.
func (s *Session) gather(r *request, n int, join scatter.Join) *reply.Gathering {
	s.wait = waitReply
	return reply.Gather(s, s.out.Slots.Hold(), r.muted, n, join)
}

// Of a command with more than manyArgs arguments only fewArgs are looked at, if these tell its way. A client chooses
// the number, and others wait meanwhile.
const manyArgs, fewArgs = 2048, 8

// isLong reports whether a command has more than manyArgs arguments. Each takes six bytes or more.
func isLong(raw []byte) bool { return len(raw) > 6*manyArgs && resp.Count(raw) > manyArgs }

// everywhere sends a command to all servers. Nothing is outstanding.
func (s *Session) everywhere(r *request, join scatter.Join) bool {
	list := s.view.Nodes()
	if len(list) == 0 {
		return r.answerWith(shared.NoUpstream)
	}
	g := s.gather(r, len(list), join)
	if r.row.Name == "info" {
		g.Edit(s.augment(r).Replace)
	}
	if done := s.pauseOf(r); done != nil {
		g.Edit(func(reply []byte) []byte {
			done(reply)
			return reply
		})
	}
	r.bound = toHeir
	for i, node := range list {
		r.partOf(r.raw, i, upstream.Node(node.ID)).send(g.Part(i))
	}
	return true
}

// scan sends a SCAN to the server that its cursor names.
func (s *Session) scan(r *request) (handled, done bool) {
	if len(r.args) < 2 {
		return false, false
	}
	if !s.awaitQuiet() {
		return true, false
	}
	view := s.view
	if len(view.Nodes()) == 0 {
		return true, r.answerWith(shared.NoUpstream)
	}
	cursor, ok := scatter.ReadCursor(r.args[1], view)
	if !ok {
		return false, false
	}
	node, own := cursor.At(view)
	r.slot, r.bound = -1, toServer
	r.target, r.raw = upstream.Node(node.ID), scatter.WithCursor(r.args, own)
	r.send(&reply.Reply{Session: s, Muted: r.muted, Replace: func(page []byte) []byte { return cursor.Follow(view, page) }})
	return true, true
}

// pauseOf returns the action behind Redis's answer to a CLIENT PAUSE or UNPAUSE: reads and writes separate before the
// first write is held back. A pause from another client of Redis is noticed when a lane stands still.
func (s *Session) pauseOf(r *request) func(reply []byte) {
	if r.row.Name != "client" {
		return nil
	}
	var length time.Duration
	switch command.Keyword(r.args, 1) {
	case "pause":
		ms, err := strconv.ParseInt(command.Keyword(r.args, 2), 10, 64)
		if err != nil {
			return nil // Redis refuses it
		}
		length = time.Duration(min(ms, maxPause.Milliseconds())) * time.Millisecond
	case "unpause":
	default:
		return nil
	}
	return func(reply []byte) {
		if resp.IsOK(reply) {
			s.proxy.Upstream.Paused(time.Now().Add(length))
		}
	}
}

// maxPause bounds the time for which a pause is remembered, not the pause.
const maxPause = 24 * time.Hour

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
