package dial

import (
	"bytes"
	"net"
)

// lent is a connection in the hands of a library that does its own handshake. It reads along until Redis has answered
// HELLO with the server's role.
type lent struct {
	net.Conn
	census *Connections
	check  func(role string) error // nil: any role will do
	head   []byte                  // the bytes read so far, while the answer is looked for
	seen   bool                    // the role was found, or is not going to come
}

// Lend returns a connection for a library that does its own handshake. check, if it is not nil, is told the role of the
// server. Its error is that of the library's read, before the library has sent a command.
func (c *Connections) Lend(nc net.Conn, check func(role string) error) net.Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	if known, ok := c.open[nc]; ok {
		known.lent = true
		c.open[nc] = known
	}
	return &lent{Conn: nc, census: c, check: check}
}

// lentHead is the largest number of Redis's bytes before the role.
const lentHead = 4 << 10

var (
	roleField = []byte("$4\r\nrole\r\n$")
	lineEnd   = []byte("\r\n")
)

// Read implements net.Conn.
func (l *lent) Read(b []byte) (int, error) {
	n, err := l.Conn.Read(b)
	if !l.seen && n > 0 {
		if refusal := l.look(b[:n]); refusal != nil {
			return 0, refusal
		}
	}
	return n, err
}

func (l *lent) look(b []byte) error {
	l.head = append(l.head, b...)
	if role, found := roleIn(l.head); found {
		l.seen, l.head = true, nil
		if l.check != nil {
			return l.check(role)
		}
		return nil
	}
	if len(l.head) > lentHead {
		l.seen, l.head = true, nil
	}
	return nil
}

// roleIn finds the role in the answer to HELLO.
func roleIn(head []byte) (role string, found bool) {
	_, after, found := bytes.Cut(head, roleField)
	if !found {
		return "", false
	}
	_, after, _ = bytes.Cut(after, lineEnd) // the length
	word, _, whole := bytes.Cut(after, lineEnd)
	return string(word), whole
}

// Close implements net.Conn.
func (l *lent) Close() error {
	l.census.Closed(l.Conn)
	return l.Conn.Close()
}
