package stream

import (
	"errors"
	"net"
	"testing"
)

// drained is a connection that cannot be written, although nothing has been read of its end.
type drained struct {
	net.Conn
	part int // bytes of which it takes so many
}

func (e drained) Write([]byte) (int, error) { return e.part, errors.New("it has ended") }

// lost is the receiver of a request that gets no reply.
type lost struct {
	Receiver
	sent bool // as it is told
}

func (l *lost) Lost(_ uint64, _ int, sent bool) { l.sent = sent }
func (l *lost) Flush()                          {}

func TestRequestsOfAFailedWriteAreUnsent(t *testing.T) {
	for part, want := range map[int]bool{0: false, 1: true} {
		own, redis := net.Pipe()
		defer redis.Close()
		s, request := New(), &lost{sent: !want}
		if err := s.Append([]byte("PING\r\n"), request, 0, 1); err != nil {
			t.Fatal(err)
		}
		s.Refuse(Serve(drained{own, part}, s, nil))
		if request.sent != want {
			t.Errorf("%d bytes written: sent %v, want %v", part, request.sent, want)
		}
	}
}
