package session

import (
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/handlers"
	"github.com/lockproxy/lockproxy/internal/proxy/parts"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

var noCluster = resp.AppendError(nil, resp.Err, "This instance has cluster support disabled")

// whole handles a command that concerns the cluster, not one server of it. handled is false for other commands. done is false if the command must
// wait.
func (l *lanes) whole(row *command.Row, p command.Policy, raw []byte) (handled, done bool) {
	s := l.s
	switch row.Name {
	case "cluster", "readonly", "readwrite", "asking": // as a server that is no part of a cluster
		if row.Name != "cluster" || len(s.args) > 1 {
			return true, s.awaitQuiet() && s.answer(noCluster)
		}
	case "scan":
		return l.scan(raw)
	}
	switch {
	case p == command.Lock:
		return !s.awaitQuiet(), false
	case (p == command.PinForever || p == command.PinRaw || p == command.Replication) && row.Title != "": // its state would be that of one server
		return true, s.awaitQuiet() && s.answer(resp.AppendError(nil, resp.Err, row.Name+" is not available in front of a cluster"))
	}
	if split, join := parts.Split(row.Name, s.args); split != nil && !s.proxy.Settings.Cluster.Refuses {
		if !s.awaitQuiet() {
			return true, false
		}
		g := l.gather(len(split), join)
		for i, part := range split {
			s.Slot, s.Target = part.Slot, s.Owner(part.Slot)
			s.Send(part.Raw, g.Part(i))
		}
		return true, true
	}
	if command.IsOwnInfo(s.args) {
		return false, false
	}
	if join := parts.Everywhere(row.Name, command.Keyword(s.args, 1), s.args); join != nil {
		if !s.awaitQuiet() {
			return true, false
		}
		return true, l.everywhere(row, raw, join)
	}
	return false, false
}

// gather begins a command of n parts. Nothing is outstanding.
func (l *lanes) gather(n int, join parts.Join) *handlers.Gathering {
	s := l.s
	s.wait = waitReply
	return handlers.Gather(s.side(), s.Slots.Hold(), s.muted, n, join)
}

// everywhere sends a command to all servers. Nothing is outstanding.
func (l *lanes) everywhere(row *command.Row, raw []byte, join parts.Join) bool {
	s := l.s
	list := s.Seen().Nodes()
	if len(list) == 0 {
		return s.answer(shared.NoUpstream)
	}
	g := l.gather(len(list), join)
	if row.Name == "info" {
		g.Edit(s.augment(row, len(raw)).Replace)
	}
	if done := s.pauseOf(row); done != nil {
		g.Edit(func(reply []byte) []byte {
			done(reply)
			return reply
		})
	}
	s.Slot, s.Fixed = -1, true
	for i, node := range list {
		s.Target = upstream.Node(node.ID)
		s.Send(raw, g.Part(i))
	}
	return true
}

// scan sends a SCAN to the server that its cursor names. At the beginning and at the end of a pass all servers are asked for their slots.
func (l *lanes) scan(raw []byte) (handled, done bool) {
	s := l.s
	if len(s.args) < 2 {
		return false, false
	}
	cursor, ok := parts.ReadCursor(s.args[1])
	if !ok {
		return false, false
	}
	if !s.awaitQuiet() {
		return true, false
	}
	view := s.Seen()
	nodes := view.Nodes()
	if len(nodes) == 0 {
		return true, s.answer(shared.NoUpstream)
	}
	s.Slot, s.Fixed = -1, true
	node, own := cursor.At(view)
	if node != nil && !cursor.Begins() {
		s.Target = upstream.Node(node.ID)
		s.Send(parts.WithCursor(s.args, own), &handlers.Reply{Session: s.side(), Muted: s.muted, Replace: cursor.Follow})
		return true, true
	}
	n, join := len(nodes), func(answers [][]byte) []byte { return cursor.End(view, answers) }
	if cursor.Begins() {
		n, join = n+1, func(answers [][]byte) []byte { return cursor.First(view, answers) }
	}
	g := l.gather(n, join)
	for i, one := range nodes {
		s.Target = upstream.Node(one.ID)
		s.Send(parts.Question, g.Part(i))
	}
	if cursor.Begins() {
		s.Target = upstream.Node(node.ID) // which has told its slots before
		s.Send(parts.WithCursor(s.args, own), g.Part(len(nodes)))
	}
	return true, true
}
