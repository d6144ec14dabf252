package proxy

import (
	"errors"
	"net"
	"strings"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/resp"
)

// listen opens one address: host:port or unix:/path.
func listen(addr string) (net.Listener, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		return net.Listen("unix", path)
	}
	return net.Listen("tcp", addr)
}

// guardedListener puts a guard in front of every connection that it accepts.
type guardedListener struct {
	net.Listener
	server *Server
	stop   <-chan struct{}
}

// Accept never hands a passing error to redcon, which would call again at once and burn a processor while the process is
// out of file descriptors.
func (l *guardedListener) Accept() (net.Conn, error) {
	const first, last = 5 * time.Millisecond, time.Second
	delay := first
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			l.server.tune(nc)
			return l.server.newArrival(nc), nil
		}
		if errors.Is(err, net.ErrClosed) {
			return nil, err
		}
		l.server.env.opts.Logger.Warn("accept", zap.Error(err), zap.Duration("retry_in", delay))
		select {
		case <-time.After(delay):
			delay = min(2*delay, last)
		case <-l.stop:
			return nil, net.ErrClosed
		}
	}
}

// arrival is a client connection until its first command. redcon reads from it, and never sees a byte that the guard has
// not checked: exactly one whole command, in array form. Then the session takes over.
type arrival struct {
	net.Conn
	server *Server
	guard  *resp.Guard
	buf    []byte // read from the client and not yet given to redcon
	first  []byte // what redcon has not yet taken of the first command
	given  bool   // the first command has been found

	detached bool // the session has taken over
}

func (srv *Server) newArrival(nc net.Conn) *arrival {
	if limit := srv.env.opts.Limits.FirstCommand; limit > 0 {
		_ = nc.SetReadDeadline(time.Now().Add(limit)) // an error shows in the read that follows
	}
	a := &arrival{Conn: nc, server: srv, guard: resp.NewGuard(srv.env.opts.Limits.Request)}
	a.guard.Restrict(srv.env.restricts(srv.env.firstIdentity()))
	return a
}

// Read gives redcon the first command.
func (a *arrival) Read(p []byte) (int, error) {
	for !a.given {
		if err := a.findFirst(); err != nil {
			return 0, err
		}
	}
	if len(a.first) == 0 {
		return 0, errors.New("read beyond the first command")
	}
	n := copy(p, a.first)
	a.first = a.first[n:]
	return n, nil
}

// findFirst looks for a whole command in what has been read, and reads more if there is none.
func (a *arrival) findFirst() error {
	for len(a.buf) > 0 {
		f, n, err := a.guard.Next(a.buf)
		if err != nil {
			_, werr := a.Conn.Write(resp.AppendRawError(nil, "ERR "+err.Error()))
			return errors.Join(err, werr)
		}
		if n == 0 {
			break
		}
		a.buf = a.buf[n:]
		if len(f.Raw) > 0 {
			a.first, a.given = f.Raw, true
			return nil
		}
	}
	chunk := make([]byte, readSize)
	n, err := a.Conn.Read(chunk)
	a.buf = append(a.buf, chunk[:n]...)
	if n > 0 {
		return nil
	}
	return err
}
