package proxy

import (
	"crypto/tls"
	"errors"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// endWatch sees the end of a client's input even if bytes before it have not been read. One goroutine waits at a time, and no goroutine
// reads meanwhile.
type endWatch struct {
	nc  net.Conn // the socket
	raw syscall.RawConn
}

// newEndWatch returns nil if the socket under nc is of a kind that cannot be watched.
func newEndWatch(nc net.Conn) *endWatch {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	if p, ok := nc.(*prefixed); ok {
		nc = p.Conn
	}
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	return &endWatch{nc: nc, raw: raw}
}

// await waits until the client's end has come, or interrupt is called. left: the client sends nothing more.
func (w *endWatch) await() (left bool, err error) {
	err = w.raw.Read(func(fd uintptr) bool {
		// More input also wakes it; then it waits again.
		fds := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		_, perr := unix.Poll(fds, 0)
		left = perr == nil && fds[0].Revents != 0
		return left
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return left, err
}

// interrupt ends await, also one that is still to come. It may be called from any goroutine.
func (w *endWatch) interrupt() { _ = w.nc.SetReadDeadline(time.Unix(1, 0)) }

// reset lets the socket be read again after interrupt.
func (w *endWatch) reset() error { return w.nc.SetReadDeadline(time.Time{}) }
