package engine

import (
	"net"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// brief is a session that ends at its first bytes.
type brief struct {
	flood
	hungups atomic.Int32
}

func (b *brief) Feed([]byte) (alive, more bool)           { return false, false }
func (b *brief) Hungup()                                  { b.hungups.Add(1) }
func (b *brief) NextWrite([]byte) (out []byte, last bool) { return nil, false }

// wrapped is a connection that is no plain socket, as TLS is none: goroutines serve it.
type wrapped struct{ net.Conn }

func (w wrapped) NetConn() net.Conn { return w.Conn }

// kinds are the ways in which a client is served.
var kinds = map[string]func(net.Conn) net.Conn{
	"event loop": func(nc net.Conn) net.Conn { return nc },
	"goroutines": func(nc net.Conn) net.Conn { return wrapped{nc} },
}

// running starts an engine, which stops with the test.
func running(t *testing.T) *Engine {
	t.Helper()
	e, err := New(Options{Tasks: &Group{}, Silence: silence, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	e.Run()
	t.Cleanup(e.Stop)
	return e
}

// Others may end a client as soon as they know it, before its engine has begun with it. The engine tells the session
// once, and goes on.
func TestHangupOfAClientThatBegins(t *testing.T) {
	for kind, as := range kinds {
		t.Run(kind, func(t *testing.T) {
			e := running(t)
			s, closed := &brief{}, make(chan struct{})
			err := e.Adopt(Arrival{
				Conn: as(flooded(t)), Read: []byte("PING\r\n"),
				Open: func(Client, int) Session { return s },
				Opened: func(c Client) error {
					c.Hangup()
					c.Flush()
					for _, l := range e.loops { // from one round into the next: what was asked for in between has been done
						for range 2 {
							round := make(chan struct{})
							l.post(func() { close(round) })
							<-round
						}
					}
					return nil
				},
				Closed: func(Client) { close(closed) },
			})
			if err != nil {
				t.Fatal(err)
			}
			<-closed
			if n := s.hungups.Load(); n != 1 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

// leaver is a session that ends its connection while it is being read: by itself, or by another goroutine that waits
// for that.
type leaver struct {
	brief
	leave func()
}

func (l *leaver) Feed([]byte) (alive, more bool) {
	l.leave()
	return true, true
}

// The end of a connection does not wait for its reader, which may wait for a goroutine that ends it.
func TestHangupOfAClientThatIsBeingRead(t *testing.T) {
	for kind, as := range kinds {
		t.Run(kind, func(t *testing.T) {
			e := running(t)
			own, other := redistest.TCPConns(t)
			s, closed := &leaver{}, make(chan struct{})
			err := e.Adopt(Arrival{
				Conn: as(own),
				Open: func(c Client, _ int) Session {
					s.leave = func() {
						done := make(chan struct{})
						go func() {
							c.Hangup()
							close(done)
						}()
						<-done
					}
					return s
				},
				Opened: func(Client) error { return nil },
				Closed: func(Client) { close(closed) },
			})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := other.Write([]byte("PING\r\n")); err != nil {
				t.Fatal(err)
			}
			select {
			case <-closed:
			case <-time.After(20 * time.Second):
				t.Fatal("the connection is still open")
			}
		})
	}
}
