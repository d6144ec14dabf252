package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

	"github.com/tidwall/redcon"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/listen"
	"github.com/lockproxy/lockproxy/internal/logging"
)

// endpoint is one address that clients connect to.
type endpoint struct {
	*listen.Listener
	tls    bool // clients speak TLS
	header bool // their first bytes may be a PROXY header that names the client
}

// listen opens one address: host:port, tls:host:port or unix:/path.
func (o *Options) listen(addr string) (*endpoint, error) {
	if path, ok := strings.CutPrefix(addr, "unix:"); ok {
		ln, err := o.Sockets.Unix(path)
		if err != nil {
			return nil, err
		}
		return &endpoint{Listener: ln}, nil
	}
	addr, secure := strings.CutPrefix(addr, "tls:")
	if secure && o.TLS == nil {
		return nil, fmt.Errorf("tls:%s: no certificate is configured", addr)
	}
	idle := o.KeepAlive
	ln, err := o.Sockets.TCP(addr, net.KeepAliveConfig{Enable: true, Idle: idle, Interval: idle / 3, Count: 3})
	if err != nil {
		return nil, err
	}
	return &endpoint{Listener: ln, tls: secure, header: o.ProxyProtocol != ProxyOff}, nil
}

// guardedListener puts a guard in front of every connection that it accepts.
type guardedListener struct {
	*endpoint
	server *Server
}

// Accept returns an error only when the drain has ended, because redcon closes the clients then that have not sent a
// command. It never returns a temporary error to redcon, which would call again at once and keep a processor busy while
// the process has no file descriptors left.
func (l *guardedListener) Accept() (net.Conn, error) {
	const first, last = 5 * time.Millisecond, time.Second
	delay := first
	for {
		nc, err := l.Listener.Accept()
		if err == nil {
			return l.server.newPendingConn(nc, l.endpoint), nil
		}
		if l.closed(err) {
			_ = l.Close() // it may be closed already
			l.server.accepting.Done()
			<-l.server.over
			return nil, net.ErrClosed
		}
		l.server.shared.Entries.Write(zap.WarnLevel, "accepting a client failed", "",
			zap.Error(err), logging.Seconds("retry_in", delay))
		select {
		case <-time.After(delay):
			delay = min(2*delay, last)
		case <-l.server.stop:
		}
	}
}

// closed reports whether the listener is to accept no more, after its deadline or its end.
func (l *guardedListener) closed(err error) bool {
	return errors.Is(err, net.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded)
}

// accept serves one listener with redcon, until the listener is closed.
func (srv *Server) accept(ln *endpoint) error {
	rs := redcon.NewServerNetwork(ln.Addr().Network(), ln.Addr().String(), srv.handle, srv.admit, srv.gone)
	if err := rs.Serve(&guardedListener{endpoint: ln, server: srv}); err != nil {
		return fmt.Errorf("serve %s: %w", ln.Addr(), err)
	}
	return nil
}

// acceptLast is the time for which clients are accepted that have connected before the listeners close.
const acceptLast = 20 * time.Millisecond

// lastCall closes the listeners. Clients that the system has connected already are accepted first: it would reset their
// connections.
func (srv *Server) lastCall() {
	for _, ln := range srv.listeners {
		ln.Finish(acceptLast)
	}
	srv.accepting.Wait()
}

func (srv *Server) closeListeners() {
	for _, ln := range srv.listeners {
		_ = ln.Close() // closing twice is an error and harmless
	}
}
