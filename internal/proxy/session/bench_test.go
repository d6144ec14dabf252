package session

import (
	"context"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// desk is an engine without I/O for one session: what the session sends to Redis is answered by the benchmark itself, and
// what it has for the client is thrown away.
type desk struct {
	sess    *Session
	wire    *upstream.Wire
	ready   chan struct{} // closed when the lane is connected
	spare   []byte
	written int
}

func (d *desk) Flush() {
	for b, _ := d.sess.NextWrite(nil); b != nil; b, _ = d.sess.NextWrite(b) {
		d.written += len(b)
	}
}

func (d *desk) Hangup()                 {}
func (d *desk) Resume()                 {}
func (d *desk) Driver() upstream.Driver { return d }

func (*desk) Unread() bool { return false }
func (*desk) Left() bool   { return false }

// Attach implements upstream.Driver.
func (d *desk) Attach(w *upstream.Wire) upstream.Mover {
	d.wire = w
	return d
}

// Ring implements upstream.Mover: the benchmark looks for itself.
func (d *desk) Ring() {}

// Drive implements upstream.Mover.
func (d *desk) Drive(nc net.Conn, stop <-chan struct{}) error {
	d.wire.Open()
	close(d.ready)
	<-stop
	return nc.Close()
}

// newDesk connects a session to a Redis that answers the PING of a new connection, and no more.
func newDesk(tb testing.TB) *desk {
	tb.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		tb.Fatal(err)
	}
	answered := make(chan error, 1)
	go func() {
		nc, err := ln.Accept()
		if err == nil {
			_, err = nc.Write([]byte("+PONG\r\n"))
			tb.Cleanup(func() { nc.Close() })
		}
		answered <- err
	}()
	tb.Cleanup(func() { ln.Close() })
	e := testEnv(tb, ln.Addr().String(), shared.Limits{})
	up := e.Upstream
	d := &desk{ready: make(chan struct{})}
	d.sess = New(clients.Origin{ID: 1, Addr: "bench"}, e, d)
	d.sess.known = true // nobody answers at the door
	d.sess.lane = up.Lane(d.sess.ident, upstream.AnyNode, d, "", upstream.Reads)
	if err := <-answered; err != nil {
		tb.Fatal(err)
	}
	<-d.ready
	tb.Cleanup(func() {
		d.sess.Hungup()
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_ = up.Run(ctx) // closes the lane
	})
	return d
}

// round is one way there and back: bytes from the client, then Redis's answer to them.
func (d *desk) round(request, reply []byte) error {
	if alive, _ := d.sess.Feed(request); !alive {
		return fmt.Errorf("the session ended on %q", request)
	}
	d.spare = d.wire.Take(d.spare)
	return d.wire.Feed(reply)
}

const (
	benchGet   = "*2\r\n$3\r\nGET\r\n$16\r\nkey:000000000042\r\n"
	benchValue = "$64\r\n" + "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef" + "\r\n"
)

// BenchmarkSession is an ordinary command through everything that does no I/O: guard, policy, session, lane, output.
func BenchmarkSession(b *testing.B) {
	for _, depth := range []int{1, 16} {
		b.Run(fmt.Sprintf("depth=%d", depth), func(b *testing.B) {
			d := newDesk(b)
			request, reply := []byte(strings.Repeat(benchGet, depth)), []byte(strings.Repeat(benchValue, depth))
			b.ReportAllocs()
			for b.Loop() {
				if err := d.round(request, reply); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func TestOrdinaryCommandsDoNotAllocate(t *testing.T) {
	for _, depth := range []int{1, 16} {
		d := newDesk(t)
		request, reply := []byte(strings.Repeat(benchGet, depth)), []byte(strings.Repeat(benchValue, depth))
		round := func() {
			if err := d.round(request, reply); err != nil {
				t.Fatal(err)
			}
		}
		for range 4 { // buffers find their sizes
			round()
		}
		d.written = 0
		if got := testing.AllocsPerRun(1000, round); got != 0 {
			t.Errorf("%d at a time: %v allocations, want 0", depth, got)
		}
		if want := 1001 * len(reply); d.written != want { // AllocsPerRun warms up with one
			t.Errorf("%d at a time: the client got %d bytes, want %d", depth, d.written, want)
		}
	}
}
