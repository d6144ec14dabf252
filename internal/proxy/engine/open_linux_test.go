package engine

import (
	"sync/atomic"
	"testing"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/proxy/tasks"
)

// brief is a session that ends at its first bytes.
type brief struct {
	flood
	hungups atomic.Int32
}

func (b *brief) Feed([]byte) (alive, more bool)           { return false, false }
func (b *brief) Hungup()                                  { b.hungups.Add(1) }
func (b *brief) NextWrite([]byte) (out []byte, last bool) { return nil, false }

// Others may end a client as soon as they know it, before its engine has begun with it. The engine tells the session once, and goes on.
func TestHangupOfAClientThatBegins(t *testing.T) {
	for _, kind := range []string{Goroutine, Epoll} {
		t.Run(kind, func(t *testing.T) {
			e, err := New(Options{Kind: kind, Tasks: &tasks.Group{}, Logger: zap.NewNop()})
			if err != nil {
				t.Fatal(err)
			}
			e.Run()
			defer e.Stop()
			s, closed := &brief{}, make(chan struct{})
			err = e.Adopt(Arrival{
				Conn: flooded(t), Read: []byte("PING\r\n"),
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
