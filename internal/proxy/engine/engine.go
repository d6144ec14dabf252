// Package engine moves the bytes of clients. It knows sockets, a few methods of a session, and upstream's Wire; it does
// not know the meaning of the bytes.
//
//	eventLoop:   epoll, Linux  all clients on plain sockets (epollClient), and their lanes (epollLane)
//	conn:        goroutines    one client over TLS, or on another system
//
// # Goroutines
//
//   - eventLoop.run, one for two processors: it moves the bytes of its clients and of their lanes, which have no
//     goroutines of their own;
//   - conn.readLoop, one for each client that no loop serves: it reads the socket and feeds the session; it ends with
//     the connection;
//   - conn.drain, only while such a client has output that has not been written.
package engine

import (
	"net"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// A Session is an engine's view of one client. Its methods do not block.
type Session interface {
	// Feed takes bytes of the client. It does not keep b. alive is false if the session has ended, and the connection
	// is to be closed. more is false if the engine may not read from the client until Client.Resume.
	Feed(b []byte) (alive, more bool)

	// EOF says that the client has ended its side, although it may still read. false: the session has ended.
	EOF() bool

	// Leaving says that the client has ended its side before all its bytes have been read. Reading continues after
	// Client.Resume. false: the session has ended.
	Leaving() bool

	// Hungup says that the client's connection is gone.
	Hungup()

	// NextWrite hands output to the engine, which returns it with the next NextWrite or EndWrite; meanwhile the engine
	// is the only writer. done is the output that it has written; nil: none. b is nil if there is nothing to write, or
	// another goroutine is writing. last: after b the connection is to be closed.
	NextWrite(done []byte) (b []byte, last bool)

	// EndWrite returns output that has been written, or that never will be.
	EndWrite(done []byte)
}

// A Client is a session's view of its connection. Its methods do not block.
type Client interface {
	// Flush moves the session's output to the client. Requires no locks.
	Flush()

	// Hangup closes the client's connection. The session may be locked.
	Hangup()

	// Resume ends a pause that Session.Feed has asked for. The session may be locked.
	Resume()

	// Yield has the goroutines that the caller has just started run soon: the client waits for one of them. The session
	// may be locked.
	Yield()

	// Driver moves the bytes of the session's lane; nil: goroutines do.
	Driver() upstream.Driver

	// Unread reports whether the client has sent bytes that the session has not got. The session may be locked.
	Unread() bool

	// Left reports whether the client has ended its side, even if the session has not been told yet. The session may be
	// locked.
	Left() bool
}

// An Arrival is a connection on which a client has begun to speak.
type Arrival struct {
	Conn net.Conn // what the protocol travels on
	Addr string   // of the client, for the log
	Read []byte   // the bytes read from it: the session gets them at once, and knows whether the client waits for a reply

	// Open makes the session of the client. fd is its file descriptor if that is another one now, else 0. No other
	// goroutine knows the session, or c, before Opened.
	Open func(c Client, fd int) Session

	// Opened makes the session known to others: from then on any goroutine may call c. An error refuses the client; its
	// connection is closed then.
	Opened func(c Client) error

	// Closed is called once, after the connection of a client that Opened did not refuse has been closed.
	Closed func(c Client)
}

// Options configure an Engine. All fields are required.
type Options struct {
	Tasks   *Group        // for goroutines that end when their client's connection has been closed
	Silence time.Duration // for which a peer may acknowledge nothing (Linux); 0: the system decides
	Logger  *zap.Logger
}

// vanished logs that a client's connection was broken because the client has acknowledged nothing for that time.
func (o *Options) vanished(addr string, silent time.Duration) {
	o.Logger.Debug("client closed: it acknowledges nothing",
		zap.String("client", addr), logging.Seconds("silent", silent))
}

// An Engine moves the bytes of all clients of a server.
type Engine struct {
	opts  Options
	loops []*eventLoop // empty on systems that have none: goroutines serve all clients
	next  atomic.Uint64
}

// New makes an Engine. Run starts it, or Discard gives it up.
func New(opts Options) (*Engine, error) {
	loops, err := newEventLoops(opts)
	return &Engine{opts: opts, loops: loops}, err
}

// Run starts the event loops. Stop waits for them.
func (e *Engine) Run() {
	for _, l := range e.loops {
		go l.run()
	}
}

// Busy returns the number of event loops, and about how long all together have been busy.
func (e *Engine) Busy() (loops int, busy time.Duration) {
	for _, l := range e.loops {
		busy += l.busy()
	}
	return len(e.loops), busy
}

// Stop ends the engine. All connections have been closed.
func (e *Engine) Stop() {
	for _, l := range e.loops {
		l.stop()
	}
}

// Discard gives up an engine that does not Run.
func (e *Engine) Discard() {
	for _, l := range e.loops {
		l.discard()
	}
}

// Adopt serves a client from now on. After an error the caller closes the connection.
func (e *Engine) Adopt(a Arrival) error {
	if len(e.loops) > 0 && plain(a.Conn) {
		return e.loops[e.next.Add(1)%uint64(len(e.loops))].adopt(a)
	}
	return serve(e.opts, a)
}

// plain reports whether nc is a socket whose bytes are the protocol's.
func plain(nc net.Conn) bool {
	switch nc.(type) {
	case *net.TCPConn, *net.UnixConn:
		return true
	}
	return false
}
