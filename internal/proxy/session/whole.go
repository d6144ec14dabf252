package session

import (
	"slices"
	"strconv"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/reply"
	"github.com/lockproxy/lockproxy/internal/proxy/scatter"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// gather begins a command of n parts. Nothing is outstanding.
func (s *Session) gather(n int, join scatter.Join) *reply.Gathering {
	s.wait = waitReply
	return reply.Gather(s, s.out.Slots.Hold(), s.muted, n, join)
}

// Of a command with more than manyArgs arguments only fewArgs are looked at, if these tell its way. A client chooses
// the number, and others wait meanwhile.
const manyArgs, fewArgs = 2048, 8

// isLong reports whether a command has more than manyArgs arguments. Each takes six bytes or more.
func isLong(raw []byte) bool { return len(raw) > 6*manyArgs && resp.Count(raw) > manyArgs }

// everywhere sends a command to all servers. Nothing is outstanding.
func (s *Session) everywhere(row *command.Row, raw []byte, join scatter.Join) bool {
	list := s.view.Nodes()
	if len(list) == 0 {
		return s.answer(shared.NoUpstream)
	}
	g := s.gather(len(list), join)
	if row.Name == "info" {
		g.Edit(s.augment(row, len(raw)).Replace)
	}
	if done := s.pauseOf(row); done != nil {
		g.Edit(func(reply []byte) []byte {
			done(reply)
			return reply
		})
	}
	s.heirs = true
	for i, node := range list {
		s.way.part(i, upstream.Node(node.ID))
		s.send(raw, g.Part(i))
	}
	return true
}

// scan sends a SCAN to the server that its cursor names. At the beginning and at the end of a pass all servers are
// asked for their slots.
func (s *Session) scan(raw []byte) (handled, done bool) {
	if len(s.args) < 2 {
		return false, false
	}
	cursor, ok := scatter.ReadCursor(s.args[1])
	if !ok {
		return false, false
	}
	if !s.awaitQuiet() {
		return true, false
	}
	view := s.view
	nodes := view.Nodes()
	if len(nodes) == 0 {
		return true, s.answer(shared.NoUpstream)
	}
	s.slot, s.fixed = -1, true
	node, own := cursor.At(view)
	if node != nil && !cursor.Begins() {
		s.target = upstream.Node(node.ID)
		s.send(scatter.WithCursor(s.args, own), &reply.Reply{Session: s, Muted: s.muted, Replace: cursor.Follow})
		return true, true
	}
	n, join := len(nodes), func(answers [][]byte) []byte { return cursor.End(view, answers) }
	if cursor.Begins() {
		n, join = n+1, func(answers [][]byte) []byte { return cursor.First(view, answers) }
	}
	g := s.gather(n, join)
	for i, one := range nodes {
		s.way.part(i, upstream.Node(one.ID))
		s.send(scatter.Question, g.Part(i))
	}
	if cursor.Begins() {
		i := slices.IndexFunc(nodes, func(one topology.ClusterNode) bool { return one.ID == node.ID })
		s.way.part(i, upstream.Node(node.ID)) // which has told its slots before
		s.send(scatter.WithCursor(s.args, own), g.Part(len(nodes)))
	}
	return true, true
}

// pauseOf returns the action behind Redis's answer to a CLIENT PAUSE or UNPAUSE: reads and writes separate before the
// first write is held back. A pause from another client of Redis is noticed when a lane stands still.
func (s *Session) pauseOf(row *command.Row) func(reply []byte) {
	if row.Name != "client" {
		return nil
	}
	var length time.Duration
	switch command.Keyword(s.args, 1) {
	case "pause":
		ms, err := strconv.ParseInt(command.Keyword(s.args, 2), 10, 64)
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
