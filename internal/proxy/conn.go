package proxy

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"go.uber.org/zap"

	"lockproxy/internal/direct"
	"lockproxy/internal/upstream"
)

// readSize is how much one read from a client may bring.
const readSize = 16 << 10

// conn moves bytes between one client's socket and its Session: the engine for any system and any kind of socket.
type conn struct {
	server *Server
	nc     net.Conn
	sess   *Session
	direct *direct.Writer // nil: output is always written by drainOutput
	watch  *endWatch      // nil: a client's end is not seen while it is not read
	resume chan struct{}  // size 1, never closed: the session may be read again
	once   sync.Once
	output crew // drainOutput
}

func newConn(srv *Server, nc net.Conn, from origin) *conn {
	c := &conn{server: srv, nc: nc, resume: make(chan struct{}, 1)}
	if sc, ok := nc.(syscall.Conn); ok {
		c.direct = direct.New(sc)
	}
	c.watch = newEndWatch(nc)
	c.sess = newSession(from.id, from.addr, srv.env, c)
	c.sess.origin = from
	return c
}

// readLoop feeds the session until the client is gone. first is what was read before the conn existed.
func (c *conn) readLoop(first ...[]byte) {
	for _, b := range first {
		if !c.sess.Feed(b) {
			c.shut()
			return
		}
	}
	err := c.read()
	switch {
	case errors.Is(err, io.EOF):
		// The client will send nothing more. What it has asked for is still answered, unless it would have to be waited for.
		if c.sess.EOF() {
			c.Flush()
			return
		}
	case err != nil && !errors.Is(err, net.ErrClosed):
		c.server.env.opts.Logger.Debug("client connection ended", zap.String("client", c.sess.addr), zap.Error(err))
	}
	c.shut()
}

func (c *conn) read() error {
	buf := make([]byte, readSize)
	for {
		n, err := c.nc.Read(buf)
		if n > 0 && !c.sess.Feed(buf[:n]) {
			return nil
		}
		if err != nil {
			return err
		}
		if !c.sess.MayRead() {
			if err := c.pause(); err != nil {
				return err
			}
		}
	}
}

// pause waits until the session may be read again, and meanwhile looks out for the client's end.
func (c *conn) pause() error {
	if c.watch == nil {
		<-c.resume
		return nil
	}
	left, err := c.watch.await()
	if errors.Is(err, net.ErrClosed) || left && !c.sess.Leaving() {
		return net.ErrClosed
	}
	<-c.resume
	return c.watch.reset()
}

// session is client.
func (c *conn) session() *Session { return c.sess }

// Resume is host.
func (c *conn) Resume() {
	if c.watch != nil {
		c.watch.interrupt()
	}
	select {
	case c.resume <- struct{}{}:
	default:
	}
}

// Driver is host: lanes have goroutines of their own.
func (c *conn) Driver() upstream.Driver { return nil }

// Flush is host. Most output fits the socket at once and is written here, by whoever produced it: the client's own reader or
// the reader of its lane, which saves a switch of goroutines for each reply. What does not fit is left to a goroutine, so a
// client that does not read never holds up its lane.
func (c *conn) Flush() {
	for {
		b, last := c.sess.BeginWrite()
		if b == nil {
			if last {
				c.shut()
			}
			return
		}
		n := 0
		if c.direct != nil {
			var err error
			if n, err = c.direct.Write(b); err != nil {
				c.sess.EndWrite(b)
				c.Hangup()
				return
			}
		}
		if n < len(b) && c.output.start(func() { c.drainOutput(b, n) }) {
			return
		}
		c.sess.EndWrite(b) // written, or of no use to anybody: the connection has been shut
	}
}

// drainOutput writes b from n on, waiting for the client as long as it takes, and then whatever has come meanwhile.
func (c *conn) drainOutput(b []byte, n int) {
	for {
		_, err := c.nc.Write(b[n:])
		c.sess.EndWrite(b)
		if err != nil {
			c.Hangup()
			return
		}
		var last bool
		if b, last = c.sess.BeginWrite(); b == nil {
			if last {
				c.shutLater()
			}
			return
		}
		n = 0
	}
}

// Hangup is host: it ends the connection's reads and writes, and readLoop does the rest.
func (c *conn) Hangup() {
	nc := c.nc
	if t, ok := nc.(interface{ NetConn() net.Conn }); ok {
		nc = t.NetConn() // closing TLS politely may block
	}
	_ = nc.Close() // its error would be of no use to anybody
	c.shutLater()
}

// shutLater ends the connection from where a session may be locked.
func (c *conn) shutLater() {
	c.server.crew.start(c.shut) // when the crew is over it has been shut
}

// shut ends everything, once.
func (c *conn) shut() {
	c.once.Do(func() {
		c.sess.Hungup()
		_ = c.nc.Close() // the client is gone or told all there was
		c.Resume()
		c.output.wait()
		c.server.forget(c)
	})
}

var _ client = (*conn)(nil)
