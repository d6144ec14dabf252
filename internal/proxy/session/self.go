package session

import (
	"bytes"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/resp"
)

// CLIENT subcommands about the client itself: Redis answers on the connection that the session uses, and the proxy replaces the parts
// that it knows better.

// augment is the handler of the reply to the command being routed, which has size bytes, if its policy is Augmented.
func (f *profile) augment(row *command.Row, size int) *replyHandler {
	s := f.s
	h := &replyHandler{s: s, muted: s.muted}
	if row.Name == "client" {
		h.replace = f.aboutSelf(size)
		return h
	}
	if row.Name == "info" && !command.IsOwnInfo(s.args) {
		before := s.proxy.Counts()
		h.replace = func(reply []byte) []byte {
			counts := s.proxy.Counts()
			counts.Connections = min(counts.Connections, before.Connections) // the connections that Redis has counted
			return counts.Edit(reply)
		}
		return h
	}
	if row.Name == "info" {
		h.replace = func(reply []byte) []byte {
			if reply[0] != '$' && reply[0] != '=' {
				return reply
			}
			return s.proxy.Numbers.Info(s.ident.Proto)
		}
		if !s.proxy.Restricts(s.ident) { // operators look here when Redis is away
			h.unsent = s.proxy.Numbers.Info(s.ident.Proto)
		}
		return h
	}
	h.replace = command.Merger(s.args, s.ident.Proto)
	return h
}

// aboutSelf returns the function that edits Redis's reply to CLIENT ID, INFO, GETREDIR or TRACKINGINFO. size is that of the command.
func (f *profile) aboutSelf(size int) func(reply []byte) []byte {
	s := f.s
	args := 0
	for _, arg := range s.args {
		args += len(arg)
	}
	switch command.Keyword(s.args, 1) {
	case "id":
		return func(reply []byte) []byte {
			if reply[0] != ':' {
				return reply
			}
			return resp.AppendInteger(nil, int(s.ID))
		}
	case "info":
		return func(reply []byte) []byte { return f.ownLine(reply, size, args) }
	}
	return func(reply []byte) []byte { return s.redir.Translate(reply) } // a command that is not answered yet may change the redirection
}

// ownLine is the answer to CLIENT INFO.
func (f *profile) ownLine(reply []byte, size, args int) []byte {
	s := f.s
	text, ok := clients.Text(reply)
	if !ok {
		return reply
	}
	line := clients.Line(bytes.TrimRight(text, "\r\n"))
	shape := clients.ShapeOf(line)
	s.proxy.Shape.Store(shape)
	c := s.described()
	c.Query += int64(size)
	c.Args = int64(args)
	var own clients.Line
	if s.pin != nil {
		own = line
	}
	return clients.AppendText(nil, reply, append(c.Append(nil, shape, own), '\n'))
}
