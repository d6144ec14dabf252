package direct

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// A Reader reads a socket whenever that has bytes. It saves two things in comparison with the socket's own Read: a buffer while the socket has no
// bytes, and the read that finds nothing, after each that has found something. One goroutine uses it.
type Reader struct {
	raw    syscall.RawConn
	hinted bool // the kernel says with each read how much is left
	space  *sync.Pool
	handle func(b []byte) bool
	err    error

	message unix.Msghdr // of one read, with the two below
	part    unix.Iovec
	hint    [hintLen + 4]byte
}

// NewReader returns a Reader for a socket; nil: it cannot be read so. space has pointers to slices, for one read each.
func NewReader(nc net.Conn, space *sync.Pool) *Reader {
	sc, ok := nc.(syscall.Conn)
	if !ok {
		return nil
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return nil
	}
	r := &Reader{raw: raw, space: space}
	err = raw.Control(func(fd uintptr) {
		r.hinted = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_INQ, 1) == nil // a unix socket has no such thing
	})
	if err != nil {
		return nil
	}
	return r
}

// Run gives handle the bytes as they come, until it returns false. Otherwise the error says why no more come: io.EOF at the end of the input.
// handle does not keep the bytes. It must not close the socket, nor wait for a goroutine that does: closing waits for handle. Shut does not.
func (r *Reader) Run(handle func(b []byte) bool) error {
	r.handle, r.err = handle, nil
	if err := r.raw.Read(r.once); err != nil {
		return err
	}
	return r.err
}

// once reads until the socket is empty. true: Run ends. The runtime calls it again after more has come: it notes that anew only after a moment at
// which there was nothing to read, so once may not leave anything behind, and the end of the input counts as something.
func (r *Reader) once(fd uintptr) (over bool) {
	b, _ := r.space.Get().(*[]byte)
	defer r.space.Put(b)
	for {
		n, more, err := r.receive(int(fd), *b)
		switch {
		case n > 0:
			if !r.handle((*b)[:n]) {
				return true
			}
			if !more {
				return false
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

// receive reads once. more: the socket may hold more.
func (r *Reader) receive(fd int, b []byte) (n int, more bool, err error) {
	if !r.hinted {
		n, err = ReadFD(fd, b)
		return n, true, err
	}
	r.part.Base = &b[0]
	r.part.SetLen(len(b))
	r.message.Iov, r.message.Control = &r.part, &r.hint[0]
	r.message.SetIovlen(1)
	r.message.SetControllen(len(r.hint))
	n, err = receive(fd, &r.message) // the function of package unix makes garbage
	return n, err != nil || r.message.Controllen < hintLen || binary.NativeEndian.Uint32(r.hint[hintLen-4:]) != 0, err
}

// hintLen is the size of the kernel's message that says how many bytes are left. The end of the input counts as one.
const hintLen = unix.SizeofCmsghdr + 4

// Shut ends the connection's reads and writes. It does not wait for them.
func (r *Reader) Shut() {
	_ = r.raw.Control(func(fd uintptr) { _ = unix.Shutdown(int(fd), unix.SHUT_RDWR) }) // it fails if the connection has ended already
}
