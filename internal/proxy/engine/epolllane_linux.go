package engine

import (
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/buffers"
	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// epollLane is a lane on a loop.
type epollLane struct {
	loop *eventLoop
	wire *upstream.Stream

	// Owned by eventLoop.run.
	fd      int    // -1: not connected
	blocked bool   // waits until the socket takes more
	out     []byte // being written
	off     int    // how much of it has been
	spare   []byte
	silent  netio.Silence
	ended   chan<- error // size 1: gets one value when the connection has ended

	queued bool // in eventLoop.rung; guarded by eventLoop.mu
}

// Wake implements upstream.Mover.
func (l *epollLane) Wake() {
	l.loop.mu.Lock()
	defer l.loop.mu.Unlock()
	if !l.queued {
		l.queued = true
		l.loop.rung = append(l.loop.rung, l)
		l.loop.interruptLocked()
	}
}

// Drive implements upstream.Mover.
func (l *epollLane) Drive(nc net.Conn, stop <-chan struct{}) error {
	fd, err := takeover(nc)
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	if !l.loop.post(func() { l.begin(fd, ended) }) {
		return errors.Join(net.ErrClosed, unix.Close(fd))
	}
	select {
	case err = <-ended:
		return err
	case <-stop:
	}
	if l.loop.post(func() { l.end(net.ErrClosed) }) {
		return <-ended
	}
	return net.ErrClosed
}

func (l *epollLane) begin(fd int, ended chan<- error) {
	l.fd, l.ended, l.blocked, l.silent = fd, ended, false, netio.Silence{}
	if err := l.loop.enter(fd, l, unix.EPOLLIN); err != nil {
		l.end(err)
		return
	}
	l.wire.Open()
}

// end closes the connection and reports its end.
func (l *epollLane) end(err error) {
	if l.fd < 0 {
		return
	}
	// The kernel drops the bytes that it has not delivered: a request that was given up must not reach Redis after its
	// repetition on another connection. Unix sockets have no such thing.
	_ = unix.SetsockoptLinger(l.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	l.loop.leave(l.fd)
	if l.out != nil && l.off == 0 {
		l.wire.Unwritten(l.out)
	}
	l.fd, l.out = -1, nil
	l.ended <- err
}

// ready implements socket.
func (l *epollLane) ready(events uint32) {
	if events&unix.EPOLLOUT != 0 {
		l.blocked = false
		if err := l.loop.watch(l.fd, unix.EPOLLIN, unix.EPOLL_CTL_MOD); err != nil {
			l.end(err)
			return
		}
		l.flush()
	}
	if l.fd < 0 || events&^unix.EPOLLOUT == 0 {
		return
	}
	n, err := netio.ReadFD(l.fd, l.loop.buf)
	switch {
	case n > 0:
		if err := l.wire.Feed(l.loop.buf[:n]); err != nil {
			l.end(err)
		}
	case err == nil:
		l.end(io.EOF)
	case !again(err):
		l.end(err)
	}
}

// quiet implements socket.
func (l *epollLane) quiet() *netio.Silence { return &l.silent }

// vanished implements socket.
func (l *epollLane) vanished(silent time.Duration) {
	l.end(fmt.Errorf("redis has acknowledged nothing for %s", silent.Round(time.Second)))
}

// write is called once in each round in which requests have come.
func (l *epollLane) write() {
	l.loop.mu.Lock()
	l.queued = false
	l.loop.mu.Unlock()
	if l.fd >= 0 && !l.blocked {
		l.flush()
	}
}

// flush writes requests until there are no more or the socket is full.
func (l *epollLane) flush() {
	for {
		if l.out == nil {
			if l.out = l.wire.Take(l.spare); l.out == nil {
				return
			}
			l.spare, l.off = nil, 0
		}
		n, err := netio.WriteFD(l.fd, l.out[l.off:])
		if n > 0 {
			l.off += n
		}
		switch {
		case l.off == len(l.out):
			l.spare = buffers.Empty(l.out)
			l.out = nil
		case err == nil:
		case again(err):
			l.blocked = true
			if err := l.loop.watch(l.fd, unix.EPOLLIN|unix.EPOLLOUT, unix.EPOLL_CTL_MOD); err != nil {
				l.end(err)
			}
			return
		default:
			l.end(err)
			return
		}
	}
}

var _ upstream.Mover = (*epollLane)(nil)
