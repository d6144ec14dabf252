package wire

import (
	"errors"
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/upstream/stream"
)

// ended is a connection that cannot be written, although nothing has been read of its end.
type ended struct {
	net.Conn
	part int // bytes of which it takes so many
}

func (e ended) Write([]byte) (int, error) { return e.part, errors.New("it has ended") }

// lost is the receiver of a request that gets no reply.
type lost struct {
	stream.Receiver
	sent bool // as it is told
}

func (l *lost) Lost(_ uint64, _ int, sent bool) { l.sent = sent }
func (l *lost) Flush()                          {}

func TestRequestsOfAFailedWriteAreUnsent(t *testing.T) {
	for part, want := range map[int]bool{0: false, 1: true} {
		own, redis := net.Pipe()
		defer redis.Close()
		s, request := stream.New(), &lost{sent: !want}
		if err := s.Append([]byte("PING\r\n"), request, 0, 1); err != nil {
			t.Fatal(err)
		}
		s.Refuse(Serve(ended{own, part}, s, nil))
		if request.sent != want {
			t.Errorf("%d bytes written: sent %v, want %v", part, request.sent, want)
		}
	}
}
