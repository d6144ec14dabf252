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

// losses is a receiver that hears of lost requests.
type losses chan bool

func (l losses) Replies(uint64, []byte, int, bool) {}
func (l losses) Lost(_ uint64, _ int, sent bool)   { l <- sent }
func (l losses) Flush()                            {}
func (l losses) Keeps() bool                       { return false }

func TestRequestsOfAFailedWriteAreUnsent(t *testing.T) {
	for part, want := range map[int]bool{0: false, 1: true} {
		own, redis := net.Pipe()
		defer redis.Close()
		s, lost := stream.New(), make(losses, 1)
		if err := s.Append([]byte("PING\r\n"), lost, 0, 1); err != nil {
			t.Fatal(err)
		}
		err := Serve(ended{own, part}, s, nil)
		s.Refuse(err)
		if got := <-lost; got != want {
			t.Errorf("%d bytes written: sent %v, want %v", part, got, want)
		}
	}
}
