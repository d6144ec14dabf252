package stream

import (
	"net"
)

// A Driver moves the bytes of lanes in place of this package's goroutines: an event loop, for one. It is comparable.
type Driver interface {
	// Attach prepares for moving the bytes of one lane.
	Attach(w Wire) Mover
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

// Wire is a lane's side toward its connection, for a Mover: a Stream without the side of the sessions. Take and Feed are
// each used by one goroutine at a time.
type Wire interface {
	// Open says that the connection is ready. If requests are waiting already, Wake is called.
	Open()

	// Take returns the bytes to write next, or nil, after which Wake announces more. The caller owns the bytes and
	// returns them as spare in a later call.
	Take(spare []byte) []byte

	// Feed takes bytes that Redis sent and hands the replies on. After an error the connection is useless.
	Feed(b []byte) error

	// Unwritten says that none of the bytes b, which Take has returned last, could be written. The connection ends.
	Unwritten(b []byte)
}
