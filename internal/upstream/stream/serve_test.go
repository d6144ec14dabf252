package stream

import (
	"errors"
	"net"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/lockproxy/lockproxy/internal/admission"
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
		s.Refuse(Serve(drained{own, part}, s, nil, nil))
		if request.sent != want {
			t.Errorf("%d bytes written: sent %v, want %v", part, request.sent, want)
		}
	}
}

// slow is the receiver of one reply. It takes the reply when it is let.
type slow struct {
	Receiver
	began, goOn chan struct{}
}

func (r *slow) Replies(uint64, []byte, int, bool) { r.began <- struct{}{}; <-r.goOn }
func (r *slow) Lost(uint64, int, bool)            {}
func (r *slow) Flush()                            {}

// Readers that share turns do not feed their streams side by side.
func TestReadersTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		turns, r := make(admission.Turns, 1), &slow{began: make(chan struct{}, 2), goOn: make(chan struct{})}
		var all sync.WaitGroup
		for range 2 {
			own, redis := net.Pipe()
			s := New()
			if err := s.Append([]byte("PING\r\n"), r, 0, 1); err != nil {
				t.Fatal(err)
			}
			all.Go(func() { s.Refuse(Serve(own, s, nil, turns)) })
			all.Go(func() {
				_, _ = redis.Read(make([]byte, 10))
				_, _ = redis.Write([]byte("+PONG\r\n"))
				_ = redis.Close()
			})
		}
		for range 2 {
			synctest.Wait()
			if n := len(r.began); n != 1 {
				t.Errorf("%d readers feed their streams at a time, want 1", n)
			}
			<-r.began
			r.goOn <- struct{}{}
		}
		all.Wait()
	})
}
