package netio

import (
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Reader reads a socket whenever that has bytes. The socket's own Read has a buffer while it waits; a Reader has
// none. One goroutine uses it.
type Reader struct {
	raw    syscall.RawConn
	space  *sync.Pool
	handle func(b []byte) bool
	err    error
}

// NewReader returns a Reader for a socket; nil: it cannot be read so. space is a Space.
func NewReader(nc net.Conn, space *sync.Pool) *Reader {
	raw := rawConn(nc)
	if raw == nil {
		return nil
	}
	return &Reader{raw: raw, space: space}
}

// Run gives handle the bytes as they come, until it returns false. Otherwise the error says why no more come: io.EOF at
// the end of the input. handle does not keep the bytes. It must not close the socket, nor wait for a goroutine that
// does: closing waits for handle.
func (r *Reader) Run(handle func(b []byte) bool) error {
	r.handle, r.err = handle, nil
	if err := r.raw.Read(r.once); err != nil {
		return err
	}
	return r.err
}

// once reads until a read finds nothing. true: Run ends. The runtime calls it again after more has come. It notes that
// only once for bytes and an end that come together, so a read that has taken all bytes is not enough, and the kernel's
// count of the bytes that remain (TCP_INQ) is not either: it does not count a reset.
func (r *Reader) once(fd uintptr) (over bool) {
	b, _ := r.space.Get().(*[]byte)
	defer r.space.Put(b)
	for {
		n, err := ReadFD(int(fd), *b)
		switch {
		case n > 0:
			if !r.handle((*b)[:n]) {
				return true
			}
		case err == nil:
			r.err = io.EOF
			return true
		case errors.Is(err, unix.EAGAIN):
			return false
		case !errors.Is(err, unix.EINTR):
			r.err = err
			return true
		}
	}
}
