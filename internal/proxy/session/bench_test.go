package session

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// desk is an engine without I/O for one session: what the session sends to Redis is answered by the benchmark itself,
// and what it has for the client is thrown away.
type desk struct {
	sess    *Session
	ready   chan struct{}         // has a value when a lane is connected
	rung    chan *upstream.Stream // wires on which something may have been sent
	spare   []byte
	written int
}

// deskLane moves the bytes of one lane. A session has another one after a command that took 25 ms: the machine was
// busy.
type deskLane struct {
	desk *desk
	wire *upstream.Stream
}

func (d *desk) Flush() {
	for b, _ := d.sess.NextWrite(nil); b != nil; b, _ = d.sess.NextWrite(b) {
		d.written += len(b)
	}
}

func (d *desk) Hangup()                 {}
func (d *desk) Resume()                 {}
func (d *desk) Yield()                  {}
func (d *desk) Driver() upstream.Driver { return d }

func (*desk) Unread() bool { return false }
func (*desk) Left() bool   { return false }

// Attach implements upstream.Driver.
func (d *desk) Attach(w *upstream.Stream) upstream.Mover { return &deskLane{d, w} }

// Wake implements upstream.Mover.
func (l *deskLane) Wake() { l.desk.rung <- l.wire }

// Drive implements upstream.Mover.
func (l *deskLane) Drive(nc net.Conn, stop <-chan struct{}) error {
	l.wire.Open()
	select {
	case l.desk.ready <- struct{}{}:
	default: // no caller waits for the lanes behind the first one
	}
	<-stop
	return nc.Close()
}

// newDesk connects a session to a Redis that answers the PING of a new connection, and no more.
func newDesk(tb testing.TB) *desk {
	tb.Helper()
	e := testEnv(tb, "unix:"+greeter(tb, ""), Limits{})
	d := &desk{ready: make(chan struct{}, 1), rung: make(chan *upstream.Stream, 16)}
	d.sess = New(clients.Origin{ID: 1, Addr: "bench"}, e, d)
	d.sess.lane = e.Upstream.Lanes.Lane(d.sess.ident, topology.Any, d, "", upstream.Reads)
	<-d.ready
	tb.Cleanup(func() { over(d.sess) })
	return d
}

// asked takes what the session has sent, and returns the wire of the lane that it was sent on. A wire may ring without
// bytes.
func (d *desk) asked() *upstream.Stream {
	for {
		wire := <-d.rung
		if b := wire.Take(d.spare); len(b) > 0 {
			d.spare = b
			wire.Take(nil) // it rings again only when it has been emptied
			return wire
		}
	}
}

// round is one way there and back: bytes from the client, then Redis's answer to them.
func (d *desk) round(request, reply []byte) error {
	if alive, _ := d.sess.Feed(request); !alive {
		return fmt.Errorf("the session ended on %q", request)
	}
	return d.asked().Feed(reply)
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
