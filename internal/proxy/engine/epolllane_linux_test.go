package engine

import (
	"net"
	"testing"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/proxy/tasks"
	"github.com/lockproxy/lockproxy/internal/upstream/stream"
	"github.com/lockproxy/lockproxy/internal/upstream/wire"
)

// losses is a receiver that hears of lost requests.
type losses chan bool

func (l losses) Replies(uint64, []byte, int, bool) {}
func (l losses) Lost(_ uint64, _ int, sent bool)   { l <- sent }
func (l losses) Flush()                            {}
func (l losses) Keeps() bool                       { return false }

// The connection of a lane has ended before its first bytes, of which the loop hears when it writes them.
func TestRequestsOfAFailedWriteAreUnsent(t *testing.T) {
	e, err := New(Options{Kind: Epoll, Tasks: &tasks.Group{}, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	e.Run()
	defer e.Stop()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	own, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if err := own.(*net.TCPConn).CloseWrite(); err != nil { // writing fails from now on, and the loop reads nothing
		t.Fatal(err)
	}
	s, lost := stream.New(), make(losses, 1)
	mover := e.loops[0].Attach(wire.New(s))
	s.OnAppend(mover.Ring)
	if err := s.Append([]byte("PING\r\n"), lost, 0, 1); err != nil {
		t.Fatal(err)
	}
	s.Refuse(mover.Drive(own, nil))
	if <-lost {
		t.Error("the request counts as sent")
	}
}
