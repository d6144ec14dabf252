package engine

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// flood is a session whose client is owed bytes without end.
type flood struct {
	chunk   []byte
	written int // in this turn
}

func (f *flood) Feed([]byte) (alive, more bool) { return true, true }
func (f *flood) EOF() bool                      { return true }
func (f *flood) Leaving() bool                  { return true }
func (f *flood) Hungup()                        {}

func (f *flood) EndWrite(done []byte) { f.written += len(done) }
func (f *flood) NextWrite(done []byte) ([]byte, bool) {
	f.EndWrite(done)
	return f.chunk, false
}

// flooded connects a client that reads whatever comes, and returns the other end. It takes more than turnBytes at once.
func flooded(t *testing.T) *net.TCPConn {
	t.Helper()
	own, client := redistest.TCPConns(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(io.Discard, client)
	}()
	t.Cleanup(func() {
		_ = client.Close()
		<-done
	})
	return own
}

// A client that takes all that it is sent does not keep an event loop to itself.
func TestLoopWritesInTurns(t *testing.T) {
	l, err := newEventLoop(Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.discard)
	fd, err := takeover(flooded(t))
	if err != nil {
		t.Fatal(err)
	}
	f := &flood{chunk: make([]byte, turnBytes/4)}
	r := &epollClient{loop: l, fd: fd, sess: f, closed: func(Client) {}}
	if err := l.enter(fd, r, 0); err != nil {
		t.Fatal(err)
	}
	defer r.close()
	for deadline := time.Now().Add(10 * time.Second); f.written < 4*turnBytes; {
		before := f.written
		r.write()
		if n := f.written - before; n > turnBytes {
			t.Fatalf("%d bytes in one turn", n)
		}
		if time.Now().After(deadline) {
			t.Fatal("the client gets no more")
		}
		if f.written > before && len(l.dirty) == 0 && r.events == 0 {
			t.Fatal("nothing brings about the next turn")
		}
	}
}
