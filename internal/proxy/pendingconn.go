package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// pendingConn is a client connection until its first command. Then the session takes over, and gets all bytes of the
// client.
//
// The client's own goroutine reads the bytes before the first command: the PROXY header and the TLS handshake. So a
// slow client delays no other client.
type pendingConn struct {
	net.Conn // the socket
	end      *endpoint
	server   *Server
	guard    *resp.Guard
	clients.Origin
	stream net.Conn // the socket, or TLS on it; nil until open
	buf    []byte   // read from the client, without the empty commands in front

	// CLIENT LIST and KILL find a client before it has a session. mu guards the fields that they use: the origin, whose
	// address the PROXY header sets, and the following ones.
	mu     sync.Mutex
	taken  bool // a session has the client
	killed bool
}

func (srv *Server) newPendingConn(nc net.Conn, end *endpoint) *pendingConn {
	a := &pendingConn{
		Conn: nc, end: end, server: srv, Origin: clients.OriginOf(nc, srv.ids.Next()),
		guard: resp.NewGuard(),
	}
	a.guard.Restrict(srv.shared.Restricts(srv.shared.FirstIdentity()))
	return a
}

// await reads until the first command has come.
func (a *pendingConn) await() error {
	if err := a.open(); err != nil {
		a.failed(err)
		return err
	}
	for {
		if found, err := a.findFirst(); found || err != nil {
			return err
		}
		if err := a.readMore(); err != nil {
			return err
		}
	}
}

// open reads the bytes before the protocol. Its time limit covers writing as well, because a client may not read our
// half of a handshake.
func (a *pendingConn) open() error {
	by := a.Since.Add(a.server.live.Load().Limits.Handshake)
	if a.end.header || a.end.tls {
		if err := a.SetDeadline(by); err != nil {
			return err
		}
	}
	if a.end.header {
		addr, rest, err := readProxyHeader(a.Conn, a.server.opts.ProxyProtocol == ProxyRequired)
		if err != nil {
			return err
		}
		a.mu.Lock()
		a.Addr = addr
		a.mu.Unlock()
		a.buf = rest
	}
	stream := a.Conn
	if a.end.tls {
		secure, err := acceptTLS(a.server.tlsTurns, a.Conn, a.buf, by, a.server.opts.TLS)
		if err != nil {
			if _, plain := errors.AsType[tls.RecordHeaderError](err); plain {
				_, _ = a.Conn.Write(speaksTLS) // it is closed in any case
				return fmt.Errorf("tls handshake: %w: the client speaks no TLS", err)
			}
			return fmt.Errorf("tls handshake: %w", err)
		}
		stream, a.buf = secure, nil
	}
	if err := a.SetDeadline(time.Time{}); err != nil {
		return err
	}
	a.stream = stream
	return nil
}

// speaksTLS is the reply to a client that speaks no TLS at a tls: address.
var speaksTLS = resp.AppendError(nil, resp.Err, "the proxy speaks TLS at this address")

// errClientTLS is about a client that speaks TLS where the proxy does not. Redis would wait for the end of the line.
var errClientTLS = errors.New("the client speaks TLS, and listen has no tls: before this address")

// isClientHello reports whether bytes are the begin of TLS.
func isClientHello(b []byte) bool {
	return len(b) > 5 && b[0] == 0x16 && b[1] == 3 && b[2] <= 4 && b[5] == 1
}

// failed counts and logs a client that has not reached the protocol, unless it has just hung up.
func (a *pendingConn) failed(err error) {
	if errors.Is(err, io.EOF) || errors.Is(err, net.ErrClosed) {
		return
	}
	a.server.shared.NoHandshake(a.Addr, err)
}

// findFirst looks for a whole command in the bytes read so far. A long one need not be held whole: the session can send
// it on as it comes.
func (a *pendingConn) findFirst() (found bool, err error) {
	if !a.end.tls && isClientHello(a.buf) {
		a.server.shared.NoHandshake(a.Addr, errClientTLS)
		return false, errClientTLS
	}
	for len(a.buf) > 0 {
		f, n, err := a.guard.Next(a.buf)
		switch {
		case err != nil:
			a.server.shared.Counters.Closed[metrics.ProtocolError].Add(1)
			_, werr := a.stream.Write(resp.AppendError(nil, resp.Err, err.Error()))
			return false, errors.Join(err, werr)
		case len(f.Raw) > 0:
			return true, nil
		case n == 0:
			return len(a.buf) >= handOver, nil
		}
		a.buf = a.buf[n:]
	}
	return false, nil
}

// readMore reads from the client.
func (a *pendingConn) readMore() error {
	chunk, _ := chunks.Get().(*[handOver]byte)
	n, err := a.stream.Read(chunk[:])
	a.buf = append(a.buf, chunk[:n]...)
	chunks.Put(chunk)
	if n > 0 {
		return nil
	}
	return err
}

// handOver is the number of bytes of a first command that are read before the session takes over, and the size of one
// read.
const handOver = 16 << 10

// chunks are buffers for such reads. A new one for each client would be most of the memory that a connection takes, and
// a seventh of its processor time.
var chunks = sync.Pool{New: func() any { return new([handOver]byte) }}

// Describe is visible: a client that has not sent a command yet.
func (a *pendingConn) Describe() (clients.Info, bool) {
	a.mu.Lock()
	from, killed := a.Origin, a.killed
	a.mu.Unlock()
	first := a.server.shared.FirstIdentity()
	c := clients.Info{User: clients.UserOf(first.User), Resp: first.Proto, DB: first.DB, Multi: -1}
	from.DescribeTo(&c)
	c.Idle = c.Age
	return c, !killed
}

// take gives the client to a session. false: it was killed.
func (a *pendingConn) take() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.taken = !a.killed
	return a.taken
}

// KillIf implements clients.Visible.
func (a *pendingConn) KillIf(match func(*clients.Info) bool) {
	if c, here := a.Describe(); !here || !match(&c) {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.killed || a.taken {
		return
	}
	a.killed = true
	a.server.shared.Clients.Remove(a.ID)
	_ = a.Conn.Close() // its goroutine sees that
}

var _ clients.Visible = (*pendingConn)(nil)
