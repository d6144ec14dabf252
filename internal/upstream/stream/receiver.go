package stream

import (
	"net"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// A Receiver gets the replies to the requests it appended. Each request has a tag of the receiver's choice, which comes
// back with its replies. A connection calls the methods from one goroutine at a time, without any lock of this package;
// they must not block.
type Receiver interface {
	// Replies hands over bytes of the replies to requests of one tag, valid only during the call, in which n whole
	// replies end. b may begin in the middle of a reply; if more is set it also ends in the middle of one.
	Replies(tag uint64, b []byte, n int, more bool)

	// Lost says that n requests of one tag will get no (further) reply. sent is false if none of their bytes were
	// written.
	Lost(tag uint64, n int, sent bool)

	// Keeps reports whether unwritten requests wait for the next connection. Else they are lost. It is called after all
	// sent requests have been reported, and again after each attempt to connect that has not reached Redis: then failed
	// is set.
	Keeps(failed bool) bool

	// Flush follows one or more calls of Replies or Lost when the connection has nothing more for now.
	Flush()
}

// An Observer gets the bytes on a pinned connection that are no counted replies.
type Observer interface {
	// Push hands over bytes of out-of-band data, valid only during the call: RESP3 pushes in counted mode, every
	// frame in framed mode, any bytes in raw mode. Except in raw mode, where kind is 0, b is one whole frame.
	Push(b []byte, kind resp.Kind)

	// Holding reports the number of bytes of an incomplete frame that the connection keeps. Push of that frame ends it.
	Holding(n int)

	// Flush follows one or more calls of Push.
	Flush()

	// Waits reports whether another attempt to connect follows one that has not reached Redis.
	Waits() bool

	// Closed says that the connection has ended. It is the last call.
	Closed(err error)
}

// A Driver moves the bytes of lanes in place of this package's goroutines: an event loop, for one. It is comparable.
type Driver interface {
	// Attach prepares for moving the bytes of one lane.
	Attach(s *Stream) Mover
}

// A Mover moves the bytes of one lane. It calls Open when the connection is ready; Take, for the bytes to write, from one
// goroutine at a time, and Unwritten if it has written none of them; and Feed, with the bytes of Redis, likewise.
type Mover interface {
	// Wake says that the stream has bytes to take, after it had none. It may be called from any goroutine, with locks
	// held, and must not block.
	Wake()

	// Drive moves bytes between nc and the stream until the connection fails or stop is closed. It closes nc, and returns
	// when it uses neither any more.
	Drive(nc net.Conn, stop <-chan struct{}) error
}
