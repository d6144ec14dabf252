// Package dial opens connections to Redis: it finds the server, connects, and makes the connection an Identity's. It knows every
// connection that is open (package census), and whether a server can be reached at all: while it cannot, one attempt at a time speaks for
// all connections to it.
//
// It starts one goroutine for each server at most: the attempt that speaks for all.
package dial

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"time"

	"lockproxy/internal/direct"
	"lockproxy/internal/upstream/census"
	"lockproxy/internal/upstream/topology"
)

// A Target is what a connection is for: a server, and who the connection is there. Connections are shared only within one. It is
// comparable.
type Target struct {
	At topology.Node
	ID Identity
}

// A Resolver knows where a server is now.
type Resolver interface {
	Resolve(ctx context.Context, at topology.Node) (network, address string, err error)
}

// Options say how to connect. All are required, except for TLS.
type Options struct {
	Resolver    Resolver
	TLS         func() *tls.Config // for one connection; nil: none
	Timeout     time.Duration      // of connecting and the handshake together, and of a question
	KeepAlive   time.Duration      // before TCP keepalive probes
	UserTimeout time.Duration      // how long written bytes may stay unacknowledged; negative: the system's

	Spawn func(func())    // runs a goroutine and waits for its end
	Stop  <-chan struct{} // closed when no attempt is of use any more
}

// A Dialer opens connections. All methods may be called from any goroutine.
type Dialer struct {
	opts  Options
	conns census.Connections

	mu    sync.Mutex
	reach map[topology.Node]*reach
}

// New returns a dialer. It connects nothing by itself.
func New(opts Options) *Dialer {
	return &Dialer{opts: opts, reach: map[topology.Node]*reach{}}
}

// reachOf is what is known of a server. The servers are those of the topology, so there are few.
func (d *Dialer) reachOf(at topology.Node) *reach {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.reach[at]
	if r == nil {
		r = &reach{try: func(ctx context.Context) error { return d.try(ctx, at) }, spawn: d.opts.Spawn, stop: d.opts.Stop}
		d.reach[at] = r
	}
	return r
}

// Census is the connections that this dialer has opened.
func (d *Dialer) Census() *census.Connections { return &d.conns }

// Open is dial for connections with waiting commands. While the server cannot be reached, it does not dial, but waits for the common attempt
// of all connections. A connection that Redis closes within the handshake has been closed on purpose (CLIENT KILL), so open tries
// again.
func (d *Dialer) Open(ctx context.Context, t Target) (net.Conn, error) {
	limit := time.Now().Add(patience)
	for {
		var nc net.Conn
		err := d.reachOf(t.At).pass(ctx)
		if err == nil {
			nc, err = d.Dial(ctx, t)
		}
		if err == nil || !isCut(err) || time.Now().After(limit) {
			return nc, err
		}
		select {
		case <-time.After(firstPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Dial opens a connection to a target. After an error no connection stays open.
func (d *Dialer) Dial(ctx context.Context, t Target) (net.Conn, error) {
	nc, err := d.connectAs(ctx, t)
	if ctx.Err() == nil {
		d.reachOf(t.At).note(err)
	}
	return nc, err
}

func (d *Dialer) connectAs(ctx context.Context, t Target) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	defer d.conns.Attempt()()
	nc, err := d.connect(ctx, t.At)
	if err != nil {
		return nil, err
	}
	number, err := shake(ctx, nc, t.ID.handshake())
	if err != nil {
		d.conns.Closed(nc)
		Abort(nc) // so that failed logins leave no ports in TIME_WAIT, however many they are
		return nil, err
	}
	d.conns.Identified(nc, number)
	return nc, nil
}

// try finds out whether a server can be reached. A refusal of the connection counts as reached.
func (d *Dialer) try(ctx context.Context, at topology.Node) error {
	nc, err := d.Dial(ctx, Target{at, Identity{Proto: 2}})
	if err == nil {
		d.HangUp(nc)
	}
	if IsRefused(err) {
		return nil
	}
	return err
}

// HangUp closes a connection that this dialer has opened.
func (d *Dialer) HangUp(nc net.Conn) {
	d.conns.Closed(nc)
	_ = nc.Close() // no session needs it any more
}

// connect is the one place where an address is looked up.
func (d *Dialer) connect(ctx context.Context, at topology.Node) (net.Conn, error) {
	network, address, err := d.opts.Resolver.Resolve(ctx, at)
	if err != nil {
		return nil, err
	}
	nd := net.Dialer{KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: d.opts.KeepAlive, Interval: d.opts.KeepAlive / 3, Count: 3}}
	nc, err := nd.DialContext(ctx, network, address)
	if err != nil {
		return nil, err
	}
	d.conns.Opened(nc)
	if tc, ok := nc.(*net.TCPConn); ok {
		if err := direct.SetUserTimeout(tc, d.opts.UserTimeout); err != nil {
			d.HangUp(nc)
			return nil, fmt.Errorf("set user timeout: %w", err)
		}
	}
	if d.opts.TLS == nil {
		return nc, nil
	}
	tc := tls.Client(nc, d.tlsConfig(address))
	if err := tc.HandshakeContext(ctx); err != nil {
		d.HangUp(nc)
		return nil, fmt.Errorf("tls handshake: %w", err)
	}
	d.conns.Replaced(nc, tc)
	return tc, nil
}

// tlsConfig is for one connection.
func (d *Dialer) tlsConfig(address string) *tls.Config {
	cfg := d.opts.TLS()
	if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
		cfg = cfg.Clone()
		cfg.ServerName, _, _ = net.SplitHostPort(address) // a unix socket has no host: the handshake says so
	}
	return cfg
}

// Connect opens a bare connection for a client library that does its own handshake. When it is closed, the kernel drops what
// it has not delivered: a script that was given up during a cut must not run when the cut is over, and for example queue a
// waiter that has left.
func (d *Dialer) Connect(ctx context.Context, at topology.Node) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	if err := d.reachOf(at).pass(ctx); err != nil {
		return nil, err
	}
	defer d.conns.Attempt()()
	nc, err := d.connect(ctx, at)
	if err != nil {
		return nil, err
	}
	if tc, ok := Bare(nc).(*net.TCPConn); ok {
		if err := tc.SetLinger(0); err != nil {
			d.HangUp(nc)
			return nil, fmt.Errorf("set linger: %w", err)
		}
	}
	return d.conns.Lend(nc), nil
}

// Await has every good contact with a server told on a channel of capacity one, until Forget. It reports false if there has been one
// since err, the outcome of an attempt.
func (d *Dialer) Await(at topology.Node, tell chan<- struct{}, err error) bool {
	return d.reachOf(at).rest(tell, err)
}

// Forget ends Await.
func (d *Dialer) Forget(at topology.Node, tell chan<- struct{}) { d.reachOf(at).wake(tell) }

// Abort closes a connection so that the kernel drops what it has not delivered: bytes of a request that was given up must
// not reach Redis after its repetition on another connection.
func Abort(nc net.Conn) {
	nc = Bare(nc)
	if tc, ok := nc.(*net.TCPConn); ok {
		_ = tc.SetLinger(0) // best effort: the connection may be gone already
	}
	_ = nc.Close()
}

// Bare is the socket under TLS. Closing TLS in due form would write once more, and wait for a Redis that does not read.
func Bare(nc net.Conn) net.Conn {
	if t, ok := nc.(*tls.Conn); ok {
		return t.NetConn()
	}
	return nc
}
