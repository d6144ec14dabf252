// Package tlsaccept makes the TLS handshakes of clients. Only a few of them compute at a time: a handshake costs a thousand times as much as a
// command, so thousands of new clients would otherwise hold up the commands and the renewals of all others. A handshake that waits for bytes of
// its client takes no turn, so slow clients hold up no other client. The package has no goroutines: the caller's one waits.
package tlsaccept

import (
	"crypto/tls"
	"net"
	"os"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/tasks"
)

// Server makes the handshake of a client on nc, of which the bytes in read have been read already. It computes while it has a turn, and fails with
// os.ErrDeadlineExceeded if it gets none by a time. The caller limits the reading and writing by a deadline of nc.
func Server(t tasks.Turns, nc net.Conn, read []byte, by time.Time, config *tls.Config) (net.Conn, error) {
	c := &conn{Conn: nc, rest: read, turns: t, by: by}
	secure := tls.Server(c, config)
	err := c.take()
	if err == nil {
		err = secure.Handshake()
	}
	c.leave()
	c.turns = nil
	if err != nil {
		return nil, err
	}
	return secure, nil
}

// conn is the client's connection under TLS. During the handshake, it has no turn while it waits for bytes. The writes of a handshake fit
// into the buffer of a socket.
type conn struct {
	net.Conn
	rest  []byte      // has been read already
	turns tasks.Turns // nil behind the handshake
	by    time.Time
	taken bool
}

// NetConn is the connection that is read from.
func (c *conn) NetConn() net.Conn { return c.Conn }

func (c *conn) Read(b []byte) (n int, err error) {
	if len(c.rest) > 0 {
		n = copy(b, c.rest)
		c.rest = c.rest[n:]
		return n, nil
	}
	if c.turns == nil {
		return c.Conn.Read(b)
	}
	c.leave()
	if n, err = c.Conn.Read(b); err == nil {
		err = c.take()
	}
	return n, err
}

func (c *conn) leave() {
	if c.taken {
		c.taken = false
		c.turns.Leave()
	}
}

func (c *conn) take() error {
	if c.taken = c.turns.TakeBy(c.by); !c.taken {
		return os.ErrDeadlineExceeded
	}
	return nil
}
