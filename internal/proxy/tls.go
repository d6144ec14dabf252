package proxy

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"os"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/admission"
)

// acceptTLS makes the handshake of a client on nc, of which the bytes in read have been read already. It computes while
// it has a turn, and fails with os.ErrDeadlineExceeded if it gets none by a time. The caller limits the reading and
// writing by a deadline of nc.
//
// Only a few handshakes compute at a time: a handshake costs a thousand times as much as a command, so thousands of new
// clients would otherwise hold up the commands and the renewals of all others. A handshake that waits for bytes of its
// client takes no turn, so slow clients hold up no other client.
func acceptTLS(t admission.Turns, nc net.Conn, read []byte, by time.Time, config *tls.Config) (*tlsConn, error) {
	c := &tlsSocket{Conn: nc, rest: read, turns: t, by: by, shakes: true}
	secure := tls.Server(c, config)
	err := c.take()
	if err == nil {
		err = secure.Handshake()
	}
	c.leave()
	c.shakes, c.space = false, nil
	if err != nil {
		return nil, err
	}
	return &tlsConn{secure, c}, nil
}

// A tlsConn is a client's connection on which a handshake has been made. It tells whether TLS holds bytes of its
// client.
type tlsConn struct {
	*tls.Conn
	under *tlsSocket
}

// Read returns bytes of one record, as tls.Conn does. b has space for a whole one.
func (c *tlsConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 {
		c.under.ahead.Add(-1)
	}
	return n, err
}

// Holds reports whether TLS has got bytes of the client that Read has not returned. A record without bytes for the
// reader counts until the next Read. Holds may be called from any goroutine.
func (c *tlsConn) Holds() bool { return c.under.ahead.Load() > 0 }

// tlsSocket is the client's connection under TLS. During the handshake, it has no turn while it waits for bytes, and
// TLS gets no bytes behind the present record, so that none of those for the reader are among them. The writes of a
// handshake fit into the buffer of a socket.
type tlsSocket struct {
	net.Conn
	rest   []byte // has been read already
	turns  admission.Turns
	by     time.Time
	taken  bool
	shakes bool   // the handshake is being made
	space  []byte // of rest, during the handshake

	records tlsRecords
	ahead   atomic.Int32 // records that TLS has got, at least in part, and that the reader has not
}

// NetConn is the connection that is read from.
func (c *tlsSocket) NetConn() net.Conn { return c.Conn }

// Read is called when TLS needs more for the present record. So the reader has got the records before that.
func (c *tlsSocket) Read(b []byte) (n int, err error) {
	if c.shakes && len(c.rest) == 0 {
		if err := c.fill(); err != nil {
			return 0, err
		}
	}
	switch rest := c.rest; {
	case len(rest) == 0:
		n, err = c.Conn.Read(b)
	case c.shakes:
		n = copy(b, rest[:min(len(rest), c.records.missing())])
	default:
		n = copy(b, rest)
	}
	if c.rest = c.rest[min(n, len(c.rest)):]; len(c.rest) == 0 {
		c.rest = nil // no reference to space
	}
	ahead := c.records.pass(b[:n])
	if len(c.rest) > 0 {
		ahead++
	}
	c.ahead.Store(int32(ahead))
	return n, err
}

// fill reads bytes of the handshake, and perhaps of what follows it.
func (c *tlsSocket) fill() error {
	c.leave()
	if c.space == nil { // a client may send byte by byte
		c.space = make([]byte, 4<<10)
	}
	n, err := c.Conn.Read(c.space)
	if c.rest = c.space[:n]; err != nil {
		return err
	}
	return c.take()
}

func (c *tlsSocket) leave() {
	if c.taken {
		c.taken = false
		c.turns.Leave()
	}
}

func (c *tlsSocket) take() error {
	if c.taken = c.turns.TakeBy(c.by); !c.taken {
		return os.ErrDeadlineExceeded
	}
	return nil
}

// recordHead is the number of bytes in front of a record. The last two of them are its length.
const recordHead = 5

// tlsRecords follows the borders of records in a stream of bytes. The zero value is in front of the first one.
type tlsRecords struct {
	head [recordHead]byte
	got  int // bytes of the present record's head; recordHead: all
	left int // bytes that its body still misses
}

// missing is the number of bytes up to the end of the present record, or of its head.
func (r *tlsRecords) missing() int {
	if r.got < recordHead {
		return recordHead - r.got
	}
	return r.left
}

// pass goes over bytes of the stream, and returns the number of records of which they have the end, or the last bytes
// so far.
func (r *tlsRecords) pass(b []byte) (n int) {
	for len(b) > 0 {
		if r.got < recordHead {
			read := copy(r.head[r.got:], b)
			r.got += read
			b = b[read:]
			if r.got == recordHead {
				r.left = int(binary.BigEndian.Uint16(r.head[recordHead-2:]))
			}
		} else {
			read := min(r.left, len(b))
			r.left -= read
			b = b[read:]
		}
		if r.got == recordHead && r.left == 0 {
			r.got = 0
			n++
		}
	}
	if r.got > 0 {
		n++
	}
	return n
}
