package netio

import (
	"errors"
	"net"
	"os"
	"syscall"
	"time"
)

// An EndWatch sees the end of a client's input even if bytes before it have not been read. One goroutine waits at a
// time, and no goroutine reads meanwhile.
type EndWatch struct {
	nc  net.Conn // the socket
	raw syscall.RawConn
}

// NewEndWatch watches the socket under nc. It returns nil if that is of a kind that cannot be watched.
func NewEndWatch(nc net.Conn) *EndWatch {
	nc = Socket(nc)
	raw := rawConn(nc)
	if raw == nil {
		return nil
	}
	return &EndWatch{nc: nc, raw: raw}
}

// Await waits until the client's end has come, or Interrupt is called. left: the client sends nothing more.
func (w *EndWatch) Await() (left bool, err error) {
	err = w.raw.Read(func(fd uintptr) bool {
		left = LeftFD(int(fd)) // more input also wakes it; then it waits again
		return left
	})
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = nil
	}
	return left, err
}

// Interrupt ends Await, also one that is still to come. It may be called from any goroutine.
func (w *EndWatch) Interrupt() { _ = w.nc.SetReadDeadline(time.Unix(1, 0)) }

// Reset lets the socket be read again after Interrupt.
func (w *EndWatch) Reset() error { return w.nc.SetReadDeadline(time.Time{}) }
