package engine

import (
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// The events that epoll watches for a client: its commands, and always its hang-up.
const (
	watchHangup = unix.EPOLLRDHUP
	watchInput  = unix.EPOLLIN | watchHangup
)

// epollClient is a client on a loop.
type epollClient struct {
	loop   *eventLoop
	fd     int
	addr   string // of the client, for the log
	sess   Session
	closed func(Client)

	// Owned by eventLoop.run.
	events uint32 // what epoll watches
	most   int    // the number of bytes that the next read may take
	out    []byte // being written
	off    int    // the number of bytes of out that have been written
	shut   bool
	silent netio.Silence

	// Guarded by eventLoop.mu.
	queued  bool // in eventLoop.dirty, or begin is still to come
	hungup  bool // to be closed
	resumed bool // to be read again
}

// begin adds the client to epoll, settles what others have asked for since it was opened, and handles the bytes that it
// has already sent.
func (c *epollClient) begin(first []byte) {
	c.events, c.most = watchInput, readSize
	if err := c.loop.enter(c.fd, c, c.events); err != nil {
		c.close()
		return
	}
	c.settle()
	if !c.shut {
		c.feed(first)
	}
}

// ready implements socket.
func (c *epollClient) ready(events uint32) {
	switch {
	case events&unix.EPOLLIN != 0:
		c.read()
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		c.ended(events)
	case events&unix.EPOLLRDHUP != 0:
		if !c.sess.Leaving() {
			c.close()
			return
		}
		// The client is not being read. The bytes before its end are still to come.
		c.watch(c.events &^ watchHangup)
	}
	if events&unix.EPOLLOUT != 0 && !c.shut {
		c.write()
	}
}

func (c *epollClient) read() {
	n, err := netio.ReadFD(c.fd, c.loop.buf[:c.most])
	if n == c.most { // there is more. It is read in larger pieces while the session takes all of it
		c.most = min(2*c.most, len(c.loop.buf))
	}
	switch {
	case n > 0:
		c.feed(c.loop.buf[:n])
	case err == nil:
		c.ended(unix.EPOLLRDHUP)
	case !again(err):
		c.close()
	}
}

func (c *epollClient) feed(b []byte) {
	if alive, more := c.sess.Feed(b); !alive {
		c.close()
	} else if !more {
		c.most = readSize
		c.watch(c.events &^ unix.EPOLLIN)
	}
}

// ended handles the end of the client's input.
func (c *epollClient) ended(events uint32) {
	if events&(unix.EPOLLHUP|unix.EPOLLERR) == 0 && c.sess.EOF() {
		c.watch(c.events &^ watchInput) // epoll would announce its end again and again
		c.Flush()
		return
	}
	c.close()
}

func (c *epollClient) watch(events uint32) {
	if c.shut || c.events == events {
		return
	}
	c.events = events
	if err := c.loop.watch(c.fd, events, unix.EPOLL_CTL_MOD); err != nil {
		c.close()
	}
}

// settle does what other goroutines have asked for, and writes the output.
func (c *epollClient) settle() {
	c.loop.mu.Lock()
	hungup, resumed := c.hungup, c.resumed
	c.queued, c.resumed = false, false
	c.loop.mu.Unlock()
	if c.shut {
		return
	}
	if hungup {
		c.close()
		return
	}
	if resumed {
		c.watch(c.events | watchInput)
	}
	if c.events&unix.EPOLLOUT == 0 {
		c.write()
	}
}

// turnBytes is the number of bytes of output that are written for one client before the next client's turn. Otherwise a
// client that reads as fast as it is written to would occupy the loop.
const turnBytes = 512 << 10

// write writes output until there is no more, the socket is full or the turn is over.
func (c *epollClient) write() {
	if c.out == nil && !c.next(c.sess.NextWrite(nil)) {
		return
	}
	for left := turnBytes; !c.shut; {
		if left <= 0 {
			if c.events&unix.EPOLLOUT == 0 { // else epoll sees to the next round
				c.Flush()
			}
			return
		}
		n, err := netio.WriteFD(c.fd, c.out[c.off:min(c.off+left, len(c.out))])
		if n > 0 {
			c.off += n
			left -= n
		}
		switch {
		case c.off == len(c.out):
			if !c.next(c.sess.NextWrite(c.out)) {
				return
			}
		case err == nil:
		case again(err):
			c.watch(c.events | unix.EPOLLOUT)
			return
		default:
			c.close()
		}
	}
}

// next makes b the output that is being written. false: there is none, and after the last one the connection ends.
func (c *epollClient) next(b []byte, last bool) bool {
	c.out, c.off = b, 0
	switch {
	case b != nil:
		if last {
			netio.CorkFD(c.fd)
		}
		return true
	case last:
		_ = unix.Shutdown(c.fd, unix.SHUT_WR) // the output is on its way even if input has not been read
		c.close()
	default:
		c.watch(c.events &^ unix.EPOLLOUT)
	}
	return false
}

// close ends the connection. It runs on eventLoop.run's goroutine.
func (c *epollClient) close() {
	if c.shut {
		return
	}
	c.shut = true
	c.sess.Hungup()
	if c.out != nil {
		c.sess.EndWrite(c.out)
		c.out = nil
	}
	c.loop.leave(c.fd)
	c.closed(c)
}

// mark schedules settle. asked is hungup or resumed; nil: it only writes.
func (c *epollClient) mark(asked *bool) {
	c.loop.mu.Lock()
	if asked != nil {
		*asked = true
	}
	if !c.queued {
		c.queued = true
		c.loop.dirty = append(c.loop.dirty, c)
		c.loop.interruptLocked()
	}
	c.loop.mu.Unlock()
}

// Flush implements Client.
func (c *epollClient) Flush() { c.mark(nil) }

// Hangup implements Client.
func (c *epollClient) Hangup() { c.mark(&c.hungup) }

// Resume implements Client.
func (c *epollClient) Resume() { c.mark(&c.resumed) }

// Yield implements Client.
func (c *epollClient) Yield() { c.loop.yields.Store(true) }

// Driver implements Client: the loop moves its clients' lanes too.
func (c *epollClient) Driver() upstream.Driver { return c.loop }

// quiet implements socket.
func (c *epollClient) quiet() *netio.Silence { return &c.silent }

// vanished implements socket.
func (c *epollClient) vanished(silent time.Duration) {
	c.loop.opts.vanished(c.addr, silent)
	c.close()
}

// Unread implements Client. The socket is open while the session has not ended.
func (c *epollClient) Unread() bool { return netio.UnreadFD(c.fd) }

// Left implements Client. The socket is open while the session has not ended.
func (c *epollClient) Left() bool { return netio.LeftFD(c.fd) }

var _ Client = (*epollClient)(nil)
