package engine

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/upstream/stream"
)

// lost is the receiver of a request that gets no reply.
type lost struct {
	stream.Receiver
	sent bool // as it is told
}

func (l *lost) Lost(_ uint64, _ int, sent bool) { l.sent = sent }
func (l *lost) Flush()                          {}

// The connection of a lane has ended before its first bytes, of which the loop hears when it writes them.
func TestRequestsOfAFailedWriteAreUnsent(t *testing.T) {
	e := running(t)
	own := flooded(t)
	if err := own.CloseWrite(); err != nil { // writing fails from now on, and the loop reads nothing
		t.Fatal(err)
	}
	s, request := stream.New(), &lost{sent: true}
	mover := e.loops[0].Attach(s)
	s.OnAppend(mover.Wake)
	if err := s.Append([]byte("PING\r\n"), request, 0, 1); err != nil {
		t.Fatal(err)
	}
	s.Refuse(mover.Drive(own, nil))
	if request.sent {
		t.Error("the request counts as sent")
	}
}
