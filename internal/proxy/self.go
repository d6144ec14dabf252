package proxy

import (
	"bytes"

	"lockproxy/internal/proxy/clients"
)

// What CLIENT says of the client itself: Redis answers, on whatever connection the session uses, and what is the proxy's is
// put in.

// aboutSelf is what becomes of Redis's reply to CLIENT ID, INFO, GETREDIR or TRACKINGINFO, of that size.
func (s *Session) aboutSelf(size int) func(reply []byte) []byte {
	args := 0
	for _, arg := range s.args {
		args += len(arg)
	}
	switch argument(s.args, 1) {
	case "id":
		return func(reply []byte) []byte {
			if reply[0] != ':' {
				return reply
			}
			return appendNumber(nil, int(s.id))
		}
	case "info":
		return func(reply []byte) []byte { return s.ownLine(reply, size, args) }
	}
	return s.redir.translate
}

// ownLine is the answer to CLIENT INFO.
func (s *Session) ownLine(reply []byte, size, args int) []byte {
	text, ok := clients.Text(reply)
	if !ok {
		return reply
	}
	line := clients.Line(bytes.TrimRight(text, "\r\n"))
	shape := clients.ShapeOf(line)
	s.env.shape.Store(shape)
	c := s.described()
	c.Query += int64(size)
	c.Args = int64(args)
	var own clients.Line
	if s.pin != nil {
		own = line
	}
	return clients.AppendText(nil, reply, append(c.Append(nil, shape, own), '\n'))
}
