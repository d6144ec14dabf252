package engine

import (
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
	sess   Session
	closed func(Client)

	// Owned by eventLoop.run.
	events uint32 // what epoll watches
	most   int    // the number of bytes that the next read may take
	out    []byte // being written
	off    int    // the number of bytes of out that have been written
	shut   bool

	// Guarded by eventLoop.mu.
	queued  bool // in eventLoop.dirty, or begin is still to come
	hungup  bool // to be closed
	resumed bool // to be read again
}

// begin adds the client to epoll, settles what others have asked for since it was opened, and handles the bytes that it
// has already sent.
func (r *epollClient) begin(first []byte) {
	r.events, r.most = watchInput, readSize
	if err := r.loop.enter(r.fd, r, r.events); err != nil {
		r.close()
		return
	}
	r.settle()
	if !r.shut {
		r.feed(first)
	}
}

// ready implements socket.
func (r *epollClient) ready(events uint32) {
	switch {
	case events&unix.EPOLLIN != 0:
		r.read()
	case events&(unix.EPOLLHUP|unix.EPOLLERR) != 0:
		r.ended(events)
	case events&unix.EPOLLRDHUP != 0:
		if !r.sess.Leaving() {
			r.close()
			return
		}
		// The client is not being read. The bytes before its end are still to come.
		r.watch(r.events &^ watchHangup)
	}
	if events&unix.EPOLLOUT != 0 && !r.shut {
		r.write()
	}
}

func (r *epollClient) read() {
	n, err := netio.ReadFD(r.fd, r.loop.buf[:r.most])
	if n == r.most { // there is more. It is read in larger pieces while the session takes all of it
		r.most = min(2*r.most, len(r.loop.buf))
	}
	switch {
	case n > 0:
		r.feed(r.loop.buf[:n])
	case err == nil:
		r.ended(unix.EPOLLRDHUP)
	case !again(err):
		r.close()
	}
}

func (r *epollClient) feed(b []byte) {
	if alive, more := r.sess.Feed(b); !alive {
		r.close()
	} else if !more {
		r.most = readSize
		r.watch(r.events &^ unix.EPOLLIN)
	}
}

// ended handles the end of the client's input.
func (r *epollClient) ended(events uint32) {
	if events&(unix.EPOLLHUP|unix.EPOLLERR) == 0 && r.sess.EOF() {
		r.watch(r.events &^ watchInput) // epoll would announce its end again and again
		r.Flush()
		return
	}
	r.close()
}

func (r *epollClient) watch(events uint32) {
	if r.shut || r.events == events {
		return
	}
	r.events = events
	if err := r.loop.watch(r.fd, events, unix.EPOLL_CTL_MOD); err != nil {
		r.close()
	}
}

// settle does what other goroutines have asked for, and writes the output.
func (r *epollClient) settle() {
	r.loop.mu.Lock()
	hungup, resumed := r.hungup, r.resumed
	r.queued, r.resumed = false, false
	r.loop.mu.Unlock()
	if r.shut {
		return
	}
	if hungup {
		r.close()
		return
	}
	if resumed {
		r.watch(r.events | watchInput)
	}
	if r.events&unix.EPOLLOUT == 0 {
		r.write()
	}
}

// write writes output until there is no more, the socket is full or the turn is over.
func (r *epollClient) write() {
	if r.out == nil && !r.take(r.sess.NextWrite(nil)) {
		return
	}
	for left := turn; !r.shut; {
		if left <= 0 {
			r.writeLater()
			return
		}
		n, err := netio.WriteFD(r.fd, r.out[r.off:min(r.off+left, len(r.out))])
		if n > 0 {
			r.off += n
			left -= n
		}
		switch {
		case r.off == len(r.out):
			if !r.take(r.sess.NextWrite(r.out)) {
				return
			}
		case err == nil:
		case again(err):
			r.watch(r.events | unix.EPOLLOUT)
			return
		default:
			r.close()
		}
	}
}

// take makes b the output that is being written. false: there is none.
func (r *epollClient) take(b []byte, last bool) bool {
	r.out, r.off = b, 0
	switch {
	case b != nil:
		if last {
			netio.CorkFD(r.fd)
		}
		return true
	case last:
		_ = unix.Shutdown(r.fd, unix.SHUT_WR) // the output is on its way even if input has not been read
		r.close()
	default:
		r.watch(r.events &^ unix.EPOLLOUT)
	}
	return false
}

// writeLater schedules write for the next round.
func (r *epollClient) writeLater() {
	if r.events&unix.EPOLLOUT == 0 { // else epoll sees to that
		r.Flush()
	}
}

// close ends the connection. It runs on eventLoop.run's goroutine.
func (r *epollClient) close() {
	if r.shut {
		return
	}
	r.shut = true
	r.sess.Hungup()
	if r.out != nil {
		r.sess.EndWrite(r.out)
		r.out = nil
	}
	r.loop.leave(r.fd)
	r.closed(r)
}

// markLocked schedules settle.
func (r *epollClient) markLocked() {
	if !r.queued {
		r.queued = true
		r.loop.dirty = append(r.loop.dirty, r)
		r.loop.interruptLocked()
	}
}

// Flush implements Client.
func (r *epollClient) Flush() {
	r.loop.mu.Lock()
	r.markLocked()
	r.loop.mu.Unlock()
}

// Hangup implements Client.
func (r *epollClient) Hangup() {
	r.loop.mu.Lock()
	r.hungup = true
	r.markLocked()
	r.loop.mu.Unlock()
}

// Resume implements Client.
func (r *epollClient) Resume() {
	r.loop.mu.Lock()
	r.resumed = true
	r.markLocked()
	r.loop.mu.Unlock()
}

// Yield implements Client.
func (r *epollClient) Yield() { r.loop.yields.Store(true) }

// Driver implements Client: the loop moves its clients' lanes too.
func (r *epollClient) Driver() upstream.Driver { return r.loop }

// Unread implements Client. The socket is open while the session has not ended.
func (r *epollClient) Unread() bool { return netio.UnreadFD(r.fd) }

// Left implements Client. The socket is open while the session has not ended.
func (r *epollClient) Left() bool { return netio.LeftFD(r.fd) }

var _ Client = (*epollClient)(nil)
