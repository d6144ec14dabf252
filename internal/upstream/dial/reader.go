package dial

import (
	"fmt"
	"net"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Reader reads whole replies one after another: for handshakes and questions, not for traffic.
type Reader struct {
	nc   net.Conn
	buf  []byte
	scan resp.Scanner
}

// next reads one reply, skipping pushes.
func (r *Reader) next() (resp.Value, error) {
	return value(r.Raw())
}

// Frame reads one reply or push.
func (r *Reader) Frame() (resp.Value, error) {
	return value(r.raw())
}

func value(b []byte, err error) (resp.Value, error) {
	if err != nil {
		return resp.Value{}, err
	}
	v, _, err := resp.Decode(b)
	return v, err
}

// Raw reads the bytes of one reply, skipping pushes.
func (r *Reader) Raw() ([]byte, error) {
	for {
		b, err := r.raw()
		if err != nil || r.scan.Kind() != '>' {
			return b, err
		}
	}
}

// raw reads the bytes of one reply or push.
func (r *Reader) raw() ([]byte, error) {
	end := 0
	for {
		n, whole, err := r.scan.Scan(r.buf[end:])
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrNotRedis, err)
		}
		end += n
		if whole {
			b := r.buf[:end]
			r.buf = r.buf[end:]
			return b, nil
		}
		if len(r.buf) > longestReply {
			return nil, fmt.Errorf("%w: a reply of more than %d bytes", ErrNotRedis, longestReply)
		}
		chunk := make([]byte, 16<<10)
		got, err := r.nc.Read(chunk)
		r.buf = append(r.buf, chunk[:got]...)
		if err != nil && got == 0 {
			return nil, err
		}
	}
}

// longestReply bounds the memory of a reply. The longest answers tell of all commands, or of all slots of a cluster.
const longestReply = 64 << 20

// NewReader reads from a connection that has no other reader.
func NewReader(nc net.Conn) *Reader { return &Reader{nc: nc} }
