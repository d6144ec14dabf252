package engine

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
)

// silence is the time for which a peer may acknowledge nothing in these tests.
const silence = 400 * time.Millisecond

// reply is a session with one reply.
type reply struct {
	flood

	said   bool
	hungup chan struct{}
}

func (r *reply) Hungup() { close(r.hungup) }

func (r *reply) NextWrite([]byte) ([]byte, bool) {
	if r.said {
		return nil, false
	}
	r.said = true
	return []byte("+OK\r\n"), false
}

func TestAClientThatHasVanishedIsClosed(t *testing.T) {
	for kind, as := range kinds {
		t.Run(kind, func(t *testing.T) {
			e, cable := running(t), redistest.Plug(t)
			cable.Unplug()
			s, closed := &reply{hungup: make(chan struct{})}, make(chan struct{})
			if err := e.Adopt(Arrival{
				Conn: as(cable.Near),
				Open: func(Client, int) Session { return s },
				Opened: func(c Client) error {
					c.Flush()
					return nil
				},
				Closed: func(Client) { close(closed) },
			}); err != nil {
				t.Fatal(err)
			}
			for what, c := range map[string]chan struct{}{"the session": s.hungup, "the server": closed} {
				select {
				case <-c:
				case <-time.After(time.Minute):
					t.Fatalf("%s is not told", what)
				}
			}
		})
	}
}

func TestALaneToAServerThatHasVanishedEnds(t *testing.T) {
	e, cable := running(t), redistest.Plug(t)
	cable.Unplug()
	s, request := stream.New(), &lost{}
	mover := e.loops[0].Attach(s)
	s.OnAppend(mover.Wake)
	if err := s.Append([]byte("PING\r\n"), request, 0, 1); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- mover.Drive(cable.Near, nil) }()
	select {
	case err := <-ended:
		s.Refuse(err)
		if !request.sent {
			t.Error("the request counts as unsent")
		}
	case <-time.After(time.Minute):
		t.Fatal("the lane does not end")
	}
}
