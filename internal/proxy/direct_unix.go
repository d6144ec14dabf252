//go:build unix

package proxy

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// directWriter writes to a socket as much as it takes at once. It is used by one goroutine at a time, and never while
// another write to the same socket is waiting.
type directWriter struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool // made once: a closure for each write would be garbage

	buf []byte
	n   int
	err error
}

func newDirectWriter(sc syscall.Conn) *directWriter {
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &directWriter{raw: raw}
	w.call = w.once
	return w
}

// write returns how much of b the socket has taken.
func (w *directWriter) write(b []byte) (int, error) {
	w.buf, w.n, w.err = b, 0, nil
	if err := w.raw.Write(w.call); err != nil {
		return 0, err
	}
	w.buf = nil
	return w.n, w.err
}

// once makes one system call and never asks to be called again when the socket is ready.
func (w *directWriter) once(fd uintptr) bool {
	for {
		n, err := unix.Write(int(fd), w.buf)
		switch {
		case err == nil:
			w.n = n
		case errors.Is(err, unix.EINTR):
			continue
		case errors.Is(err, unix.EAGAIN):
		default:
			w.err = err
		}
		return true
	}
}
