package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"time"

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

// accept serves one listener, until its deadline or its end. After an error such as too few file descriptors it waits
// before it accepts again, or it would keep a processor busy.
func (srv *Server) accept(ln *endpoint) {
	const first, last = 5 * time.Millisecond, time.Second
	for delay := first; ; {
		nc, err := ln.Accept()
		switch {
		case err == nil:
			delay = first
			srv.arrive(srv.newPendingConn(nc, ln))
			continue
		case errors.Is(err, net.ErrClosed), errors.Is(err, os.ErrDeadlineExceeded):
			_ = ln.Close() // it may be closed already
			return
		}
		srv.shared.Entries.Write(zap.WarnLevel, "accepting a client failed", "",
			zap.Error(err), logging.Seconds("retry_in", delay))
		select {
		case <-time.After(delay):
			delay = min(2*delay, last)
		case <-srv.stop:
		}
	}
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
