package netio

import (
	"errors"
	"syscall"

	"golang.org/x/sys/unix"
)

// Writer writes to a socket as much as it takes at once. It is used by one goroutine at a time, and never while
// another write to the same socket is waiting.
type Writer struct {
	raw  syscall.RawConn
	call func(fd uintptr) bool // made once: a closure for each write would be garbage

	buf []byte
	n   int
	err error
}

// New returns a Writer for a socket; nil: it cannot be written so.
func New(sc syscall.Conn) *Writer {
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	w := &Writer{raw: raw}
	w.call = w.once
	return w
}

// Write returns how much of b the socket has taken. It does not keep b.
func (w *Writer) Write(b []byte) (int, error) {
	w.buf, w.n, w.err = b, 0, nil
	if err := w.raw.Write(w.call); err != nil {
		return 0, err
	}
	w.buf = nil
	return w.n, w.err
}

// once makes one system call and never asks to be called again when the socket is ready.
func (w *Writer) once(fd uintptr) bool {
	for {
		n, err := WriteFD(int(fd), w.buf)
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
