package proxy

import (
	"bytes"
	"slices"
	"strconv"

	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/resp"
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

// redirection is where CLIENT TRACKING sends invalidations: to the client with that id, whose connection at Redis is conn. The
// zero value: nowhere, or to a client of Redis's.
type redirection struct{ client, conn uint64 }

// translate puts the client's id into a reply or push that ends with that of its connection.
func (r redirection) translate(reply []byte) []byte {
	if r.conn == 0 {
		return reply
	}
	old := strconv.AppendUint([]byte(":"), r.conn, 10)
	for _, prefix := range redirPrefixes {
		at := bytes.Index(reply, slices.Concat([]byte(prefix), old, []byte("\r\n")))
		if at < 0 || prefix == "" && at > 0 {
			continue
		}
		at += len(prefix) + 1
		return slices.Concat(reply[:at], strconv.AppendUint(nil, r.client, 10), reply[at+len(old)-1:])
	}
	return reply
}

// redirPrefixes stand before the id in the replies to CLIENT GETREDIR and TRACKINGINFO, and in the push that says that the
// client has gone.
var redirPrefixes = []string{"", "$8\r\nredirect\r\n", "$21\r\ntracking-redir-broken\r\n"}

// track prepares a CLIENT TRACKING that redirects to a client of the proxy: Redis must be told of the connection that the client
// has there for itself. It returns the command to send, and what it redirects to.
func (s *Session) track(raw []byte) ([]byte, redirection) {
	for i := 3; i+1 < len(s.args); i++ {
		if argument(s.args, i) != "redirect" {
			continue
		}
		id, err := strconv.ParseInt(string(s.args[i+1]), 10, 64)
		if err != nil || clients.Foreign(id) {
			break
		}
		l, _ := s.env.clients.Get(uint64(id))
		target, ok := l.(*Session)
		if !ok {
			break
		}
		pin := target.ofPin.Load()
		if pin == nil || pin.ID() == 0 {
			break // Redis says that there is no such client
		}
		args := slices.Clone(s.args)
		args[i+1] = strconv.AppendUint(nil, pin.ID(), 10)
		return resp.AppendCommand(nil, args...), redirection{client: uint64(id), conn: pin.ID()}
	}
	return raw, redirection{}
}
