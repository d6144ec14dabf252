package engine

import (
	"errors"
	"io"
	"net"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// readSize is the largest number of bytes of one read from a client.
const readSize = 16 << 10

// readBuffers have the bytes of one read each. Each connection has one until it ends.
var readBuffers = netio.Space(readSize)

// conn moves bytes between one client and its session with goroutines: over TLS, and on systems without event loops.
type conn struct {
	opts    Options
	arrival Arrival
	nc      net.Conn
	sess    Session
	watch   *netio.EndWatch // nil: a client's end is not seen while it is not read
	guard   *netio.Guard    // nil: the system alone notices that the client has vanished
	resume  chan struct{}   // size 1, never closed: the session may be read again
	once    sync.Once
	output  Group // drain
}

// serve makes a conn of an arrival.
func serve(opts Options, a Arrival) error {
	c := &conn{opts: opts, arrival: a, nc: a.Conn, resume: make(chan struct{}, 1), watch: netio.NewEndWatch(a.Conn)}
	c.sess = a.Open(c, 0)
	c.guard = netio.NewGuard(a.Conn, opts.Silence, func(silent time.Duration) { opts.vanished(a.Addr, silent) })
	if err := a.Opened(c); err != nil {
		c.guard.Stop()
		return err
	}
	opts.Tasks.Start(func() { c.readLoop(a.Read) })
	return nil
}

// readLoop feeds the session until the client is gone. first was read before the conn existed.
func (c *conn) readLoop(first []byte) {
	err := c.read(first)
	switch {
	case errors.Is(err, io.EOF):
		// The client has ended its side. Its commands are still answered, up to the first one that must wait for other
		// clients.
		if c.sess.EOF() {
			c.Flush()
			return
		}
	case !errors.Is(err, net.ErrClosed):
		c.opts.Logger.Debug("client connection ended", zap.String("client", c.arrival.Addr), zap.Error(err))
	}
	c.shut()
}

// read feeds the session until the client or the session has ended.
func (c *conn) read(first []byte) error {
	if err := c.feed(first); err != nil {
		return err
	}
	buf, _ := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for {
		n, err := c.nc.Read(*buf)
		if n > 0 {
			if err := c.feed((*buf)[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return err
		}
	}
}

// feed returns when the client may be read again.
func (c *conn) feed(b []byte) error {
	alive, more := c.sess.Feed(b)
	switch {
	case !alive:
		return net.ErrClosed
	case !more:
		return c.pause()
	}
	return nil
}

// pause waits until the session may be read again, and watches for the client's end meanwhile.
func (c *conn) pause() error {
	if c.watch == nil {
		<-c.resume
		return nil
	}
	left, err := c.watch.Await()
	if errors.Is(err, net.ErrClosed) || left && !c.sess.Leaving() {
		return net.ErrClosed
	}
	<-c.resume
	return c.watch.Reset()
}

// Resume implements Client.
func (c *conn) Resume() {
	if c.watch != nil {
		c.watch.Interrupt()
	}
	select {
	case c.resume <- struct{}{}:
	default:
	}
}

// Yield implements Client. The goroutines that read clients and lanes wait soon, and the runtime knows it.
func (c *conn) Yield() {}

// Driver implements Client: lanes have goroutines of their own.
func (c *conn) Driver() upstream.Driver { return nil }

// Unread implements Client. TLS may have bytes that are not in the socket any more.
func (c *conn) Unread() bool {
	secure, ok := c.nc.(interface{ Holds() bool })
	return ok && secure.Holds() || netio.Unread(c.nc)
}

// Left implements Client.
func (c *conn) Left() bool { return netio.Left(c.nc) }

// Flush implements Client. A goroutine writes the output, so a client that does not read never holds up its lane.
func (c *conn) Flush() {
	b, last := c.sess.NextWrite(nil)
	switch {
	case b != nil:
		if !c.output.Start(func() { c.drain(b, last) }) {
			c.sess.EndWrite(b) // the connection has been shut
		}
	case last:
		c.part() // the client's own reader may be the caller
	}
}

// drain writes b, however long the client takes, and then the output that has come meanwhile.
func (c *conn) drain(b []byte, last bool) {
	for b != nil {
		if _, err := c.nc.Write(b); err != nil {
			c.sess.EndWrite(b)
			c.Hangup()
			return
		}
		b, last = c.sess.NextWrite(b)
	}
	if last {
		c.part()
	}
}

// part ends a connection whose output has been written, even if input has not been read. A client of TLS may wait for
// the word that no more follows.
func (c *conn) part() {
	c.opts.Tasks.Start(func() { // as in Hangup; and the word waits for a client that does not read
		if half, ok := c.nc.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite() // the connection is closed next
		}
		c.shut()
	})
}

// Hangup implements Client: it ends the connection's reads and writes, and readLoop does the rest.
func (c *conn) Hangup() {
	_ = netio.Socket(c.nc).Close() // closing TLS politely may block; the error would have no reader
	c.opts.Tasks.Start(c.shut)     // the caller may have locked a session, or be its reader. No start: it has been shut
}

// shut ends everything, once.
func (c *conn) shut() {
	c.once.Do(func() {
		c.sess.Hungup()
		c.guard.Stop()
		_ = c.nc.Close() // the client has gone or has all its replies
		c.Resume()
		c.output.Wait()
		c.arrival.Closed(c)
	})
}

var _ Client = (*conn)(nil)
