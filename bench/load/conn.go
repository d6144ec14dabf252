package load

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// Conn is one connection of a Loop, for its Workload.
type Conn struct {
	ID    int   // 0 for the first of the Loop
	Round int64 // of the Workload: free to use
	Since int64 // of the Workload: free to use
	State int   // of the Workload: free to use

	fd       int
	loop     *Loop
	w        Workload
	dirty    bool   // in loop.dirty
	writable bool   // epoll has been asked to say when the socket can be written
	out      []byte // not yet written
	rest     []byte // start of a reply of which more is to come
	skip     int    // bytes of a bulk string still to come
	sent     []sent // commands without a reply, oldest at first
	first    int
}

type sent struct {
	at  int64
	tag int
}

// Send queues a command. tag comes back with its reply, as does at: the time from which the reply's latency counts.
// The queued commands are written when the Workload returns.
func (c *Conn) Send(cmd []byte, tag int, at int64) {
	c.out = append(c.out, cmd...)
	c.sent = append(c.sent, sent{at, tag})
	if !c.dirty {
		c.dirty = true
		c.loop.dirty = append(c.loop.dirty, c)
	}
}

// Outstanding calls f for every command that has no reply yet.
func (c *Conn) Outstanding(f func(tag int, at int64)) {
	for _, s := range c.sent[c.first:] {
		f(s.tag, s.at)
	}
}

func (c *Conn) flush() error {
	c.dirty = false
	written := 0
	for written < len(c.out) {
		n, err := unix.Write(c.fd, c.out[written:])
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.ENOTCONN) {
			break
		}
		if err != nil {
			return fmt.Errorf("write: %w", err)
		}
		written += n
	}
	c.out = c.out[:copy(c.out, c.out[written:])]
	if pending := len(c.out) > 0; pending != c.writable {
		c.writable = pending
		return c.loop.watch(unix.EPOLL_CTL_MOD, c)
	}
	return nil
}

// read takes what the socket has, and lets the Workload see the replies that are complete.
func (c *Conn) read(buf []byte) error {
	n, err := unix.Read(c.fd, buf)
	switch {
	case errors.Is(err, unix.EAGAIN):
		return nil
	case err != nil:
		return fmt.Errorf("read: %w", err)
	case n == 0:
		return errors.New("the server closed the connection")
	}
	b := buf[:n]
	if len(c.rest) > 0 {
		c.rest = append(c.rest, b...)
		b = c.rest
	}
	for {
		if c.skip > 0 {
			n := min(c.skip, len(b))
			c.skip -= n
			b = b[n:]
			if c.skip > 0 {
				break
			}
			c.replied(nil)
		}
		if len(b) == 0 {
			break
		}
		head, n, err := frame(b)
		if errors.Is(err, errPartial) {
			break
		}
		if err != nil {
			return err
		}
		if n > len(b) { // the end of a long bulk string is its reply's time
			c.skip = n - len(b)
			b = nil
			break
		}
		c.replied(head)
		b = b[n:]
	}
	c.rest = append(c.rest[:0], b...)
	return c.loop.err
}

func (c *Conn) replied(head []byte) {
	if c.first == len(c.sent) {
		c.loop.Fail(fmt.Errorf("a reply without a request: %.40q", head))
		return
	}
	s := c.sent[c.first]
	c.first++
	if c.first == len(c.sent) {
		c.sent, c.first = c.sent[:0], 0
	}
	if len(head) > 0 && head[0] == '-' && !c.loop.ErrorsAllowed {
		c.loop.Fail(fmt.Errorf("error reply: %s", head[1:]))
		return
	}
	c.w.Reply(c, Reply{Tag: s.tag, Sent: s.at, Head: head})
}
