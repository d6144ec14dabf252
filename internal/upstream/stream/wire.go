package stream

import (
	"net"
)

// A Driver moves the bytes of lanes in place of this package's goroutines: an event loop, for one. It is comparable.
type Driver interface {
	// Attach prepares for moving the bytes of one lane.
	Attach(w *Wire) Mover
}

// A Mover moves the bytes of one lane.
type Mover interface {
	// Wake says that the wire has bytes to take, after it had none. It may be called from any goroutine, with locks
	// held, and must not block.
	Wake()

	// Drive moves bytes between nc and the wire until the connection fails or stop is closed. It closes nc, and returns
	// when it uses neither any more.
	Drive(nc net.Conn, stop <-chan struct{}) error
}

// Wire is a lane's side toward its connection, for a Mover. Take and Feed are each used by one goroutine at a time.
//
// It moves the bytes between a stream and its socket. Goroutines do it (Serve), or an event loop (Driver).
//
// Serve has three goroutines: the caller reads, one writes, and one closes the connection when it is asked to.
type Wire struct{ stream *Stream }

// NewWire returns the wire of a stream.
func NewWire(s *Stream) *Wire { return &Wire{s} }

// Open says that the connection is ready. If requests are waiting already, Wake is called.
func (w *Wire) Open() { w.stream.Open() }

// Take returns the bytes to write next, or nil, after which Wake announces more. The caller owns the bytes and returns
// them as spare in a later call.
func (w *Wire) Take(spare []byte) []byte { return w.stream.Take(spare) }

// Feed takes bytes that Redis sent and hands the replies on. After an error the connection is useless.
func (w *Wire) Feed(b []byte) error { return w.stream.Feed(b) }

// Unwritten says that none of the bytes b, which Take has returned last, could be written. The connection ends.
func (w *Wire) Unwritten(b []byte) { w.stream.Unwritten(b) }
