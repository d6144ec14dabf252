package engine

import (
	"errors"
	"io"
	"net"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// epollLane is a lane on a loop.
type epollLane struct {
	loop *eventLoop
	wire upstream.Wire

	// Owned by eventLoop.run.
	fd      int    // -1: not connected
	blocked bool   // waits until the socket takes more
	out     []byte // being written
	off     int    // how much of it has been
	spare   []byte
	ended   chan<- error // size 1: gets one value when the connection has ended

	queued bool // in eventLoop.rung; guarded by eventLoop.mu
}

// Wake implements upstream.Mover.
func (w *epollLane) Wake() {
	w.loop.mu.Lock()
	defer w.loop.mu.Unlock()
	if !w.queued {
		w.queued = true
		w.loop.rung = append(w.loop.rung, w)
		w.loop.interruptLocked()
	}
}

// Drive implements upstream.Mover.
func (w *epollLane) Drive(nc net.Conn, stop <-chan struct{}) error {
	fd, err := takeover(nc)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	if !w.loop.post(func() { w.begin(fd, ended) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	select {
	case err = <-ended:
		return err
	case <-stop:
	}
	if w.loop.post(func() { w.end(net.ErrClosed) }) {
		return <-ended
	}
	return net.ErrClosed
}

func (w *epollLane) begin(fd int, ended chan<- error) {
	w.fd, w.ended, w.blocked = fd, ended, false
	if err := w.loop.enter(fd, w, unix.EPOLLIN); err != nil {
		w.end(err)
		return
	}
	w.wire.Open()
}

// end closes the connection and reports its end.
func (w *epollLane) end(err error) {
	if w.fd < 0 {
		return
	}
	// The kernel drops the bytes that it has not delivered: a request that was given up must not reach Redis after its
	// repetition on another connection.
	_ = unix.SetsockoptLinger(w.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1}) // unix sockets have no such thing
	w.loop.leave(w.fd)
	if w.out != nil && w.off == 0 {
		w.wire.Unwritten(w.out)
	}
	w.fd, w.out = -1, nil
	w.ended <- err
}

// ready implements socket.
func (w *epollLane) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		w.blocked = false
		if err := w.loop.watch(w.fd, unix.EPOLLIN, unix.EPOLL_CTL_MOD); err != nil {
			w.end(err)
			return
		}
		w.flush()
	}
	if w.fd < 0 || events&^unix.EPOLLOUT == 0 {
		return
	}
	n, err := netio.ReadFD(w.fd, w.loop.buf)
	switch {
	case n > 0:
		if err := w.wire.Feed(w.loop.buf[:n]); err != nil {
			w.end(err)
		}
	case err == nil:
		w.end(io.EOF)
	case !again(err):
		w.end(err)
	}
}

// write is called once in each round in which requests have come.
func (w *epollLane) write() {
	w.loop.mu.Lock()
	w.queued = false
	w.loop.mu.Unlock()
	if w.fd >= 0 && !w.blocked {
		w.flush()
	}
}

// flush writes requests until there are no more or the socket is full.
func (w *epollLane) flush() {
	for {
		if w.out == nil {
			if w.out = w.wire.Take(w.spare); w.out == nil {
				return
			}
			w.spare, w.off = nil, 0
		}
		n, err := netio.WriteFD(w.fd, w.out[w.off:])
		if n > 0 {
			w.off += n
		}
		switch {
		case w.off == len(w.out):
			w.spare = buffers.Empty(w.out)
			w.out = nil
		case err == nil:
		case again(err):
			w.blocked = true
			if err := w.loop.watch(w.fd, unix.EPOLLIN|unix.EPOLLOUT, unix.EPOLL_CTL_MOD); err != nil {
				w.end(err)
			}
			return
		default:
			w.end(err)
			return
		}
	}
}

var _ upstream.Mover = (*epollLane)(nil)
