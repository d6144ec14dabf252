// Package dial opens connections to Redis: it finds the server, connects, and makes the connection an Identity's. It
// knows every connection that is open, and whether a server can be reached at all: while it cannot, one attempt at a
// time speaks for all connections to it.
//
// It starts the attempts that speak for all, one for each server, and for each UntilClosed a goroutine that waits.
package dial

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lockproxy/lockproxy/internal/netio"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Target is what a connection is for: a server, and the identity that the connection has there. Connections are
// shared only within one. It is comparable.
type Target struct {
	At topology.Node
	ID Identity
}

// A Resolver knows where a server is now.
type Resolver interface {
	Resolve(at topology.Node) (topology.Place, error)

	// Doubt says that a server was not found at an address, or is no primary: it may have moved. It does not block.
	Doubt(address string)
}

// Options say how to connect. All are required, except for TLS, Wait, Slow and Refused.
type Options struct {
	Resolver  Resolver
	TLS       func() *tls.Config // for one connection; nil: none
	Setting   string             // the setting that decides about TLS, for errors
	Timeout   time.Duration      // of connecting and the handshake together, and of a question
	KeepAlive time.Duration      // before TCP keepalive probes
	Silence   time.Duration      // for which a server may acknowledge nothing (Linux); 0: the system decides
	Wait      time.Duration      // of Open while the server cannot be reached

	// Slow is told from time to time of a server that takes long to accept a connection; nil: none is told. It does not
	// block.
	Slow func(at topology.Node)

	// Vanished is told of a connection that was broken, because the server has acknowledged nothing for that time; nil:
	// none is told.
	Vanished func(address string, silent time.Duration)

	// Refused is told of a server that demands a login of a new connection without credentials; nil: none is told. It
	// requires no locks.
	Refused func(at topology.Node)

	Spawn func(func())    // runs a goroutine and waits for its end
	Stop  <-chan struct{} // closed when no attempt is of use any more
}

// A Dialer opens connections. All methods may be called from any goroutine.
type Dialer struct {
	opts  Options
	conns Connections

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

// Connections are the connections that this dialer has opened.
func (d *Dialer) Connections() *Connections { return &d.conns }

// Open is dial for connections with waiting commands. While Redis cannot be reached, it does not dial, but waits for
// the common attempt of all connections. A connection that Redis closes within the handshake has been closed on purpose
// (CLIENT KILL), so open tries again. A server that cannot be reached is looked for until Options.Wait is over.
func (d *Dialer) Open(ctx context.Context, t Target) (net.Conn, error) {
	now := time.Now()
	cutLimit, limit := now.Add(patience), now.Add(d.opts.Wait)
	var pauses Backoff
	contact := make(chan struct{}, 1)
	defer d.Forget(t.At, contact)
	for {
		var nc net.Conn
		err := d.reachOf(t.At).pass(ctx)
		if err == nil {
			nc, err = d.Dial(ctx, t)
		}
		pause := firstPause
		switch now := time.Now(); {
		case err == nil:
			return nc, nil
		case IsCut(err) && now.Before(cutLimit):
		case !IsRefused(err) && now.Before(limit):
			_, pause = pauses.Next()
			d.Await(t.At, contact, err)
		default:
			return nil, err
		}
		select {
		case <-time.After(pause):
		case <-contact:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Dial opens a connection to a target. After an error no connection stays open.
func (d *Dialer) Dial(ctx context.Context, t Target) (net.Conn, error) {
	for {
		nc, place, _, err := d.connectAs(ctx, t)
		switch {
		case ctx.Err() != nil:
			return nc, err
		case err == nil && place.Left():
			d.conns.Closed(nc)
			Abort(nc)
			continue
		case err != nil && place.Left():
			continue // the error is about a process that does not matter any more
		case err != nil && !IsRefused(err):
			d.opts.Resolver.Doubt(place.Address)
		}
		d.reachOf(t.At).note(err)
		return nc, err
	}
}

// A Role is that of a server, as a new connection finds it.
type Role uint8

// The roles.
const (
	Unreachable Role = iota // there is no connection
	Untold                  // it refuses the connection, or tells nothing without credentials
	Primary
	Replica
)

// roleOf is the role that a server tells in the answer to HELLO.
func roleOf(word string) Role {
	switch word {
	case "master":
		return Primary
	case "replica":
		return Replica
	}
	return Untold
}

// Role connects to a target to find out its role.
func (d *Dialer) Role(ctx context.Context, t Target) Role {
	nc, _, role, err := d.connectAs(ctx, t)
	if err == nil {
		d.HangUp(nc)
	}
	switch {
	case errors.Is(err, topology.ErrNotPrimary):
		return Replica
	case IsRefused(err):
		return Untold
	case err != nil:
		return Unreachable
	}
	return role
}

func (d *Dialer) connectAs(ctx context.Context, t Target) (_ net.Conn, _ topology.Place, role Role, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	defer d.tellSlow(t.At)()
	nc, place, err := d.connect(ctx, cancel, t.At)
	if err != nil {
		return nil, place, Unreachable, err
	}
	defer place.OnLeft(cancel)()
	hello, err := Shake(ctx, nc, t.ID)
	if d.opts.TLS == nil && (IsCut(err) || errors.Is(err, ErrNotRedis)) {
		err = fmt.Errorf("%w (if the server speaks TLS at this port, %s must be set)", err, d.opts.Setting)
	}
	role = roleOf(string(hello.Field("role").Str))
	if err == nil && place.Primary && role == Replica {
		err = topology.ErrNotPrimary
	}
	locked := false
	if err == nil && !t.ID.Authenticated() {
		locked, err = d.isLocked(nc, hello)
	}
	if err != nil {
		d.conns.Closed(nc)
		Abort(nc) // so that failed logins leave no ports in TIME_WAIT, however many they are
		return nil, place, role, err
	}
	d.conns.Greeted(nc, hello, locked)
	if locked && d.opts.Refused != nil {
		d.opts.Refused(t.At)
	}
	return nc, place, role, nil
}

// isLocked reports whether Redis demands credentials of a connection that has none. A Redis without HELLO is asked.
func (d *Dialer) isLocked(nc net.Conn, hello resp.Value) (bool, error) {
	switch {
	case !hello.IsError():
		return false, nil
	case bytes.HasPrefix(hello.Str, []byte("NOAUTH ")):
		return true, nil
	}
	reply, err := d.Ask(nc, "PING")
	if err != nil {
		return false, err
	}
	return bytes.HasPrefix(reply, []byte("-NOAUTH ")), nc.SetDeadline(time.Time{})
}

// slowAfter is the time after which an attempt to connect counts as slow, and the time between two reports of it.
const slowAfter = 100 * time.Millisecond

// tellSlow reports a slow attempt to connect until done is called.
func (d *Dialer) tellSlow(at topology.Node) (done func()) {
	if d.opts.Slow == nil {
		return func() {}
	}
	var again atomic.Pointer[time.Timer]
	t := time.AfterFunc(slowAfter, func() {
		d.opts.Slow(at)
		if t := again.Load(); t != nil {
			t.Reset(slowAfter)
		}
	})
	again.Store(t)
	return func() {
		again.Store(nil)
		t.Stop()
	}
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

// connect is the one place where an address is looked up. The attempt is given up when the server moves meanwhile:
// cancel ends ctx.
func (d *Dialer) connect(ctx context.Context, cancel func(), at topology.Node) (net.Conn, topology.Place, error) {
	place, err := d.opts.Resolver.Resolve(at)
	if err != nil {
		return nil, place, err
	}
	defer place.OnLeft(cancel)()
	alive := net.KeepAliveConfig{Enable: true, Idle: d.opts.KeepAlive, Interval: d.opts.KeepAlive / 3, Count: 3}
	nd := net.Dialer{KeepAliveConfig: alive}
	nc, err := nd.DialContext(ctx, place.Network, place.Address)
	if err != nil {
		return nil, place, err
	}
	if d.opts.TLS != nil {
		tc := tls.Client(nc, d.tlsConfig(place.Address))
		if err := tc.HandshakeContext(ctx); err != nil {
			_ = nc.Close()
			if isNoTLS(err) {
				err = fmt.Errorf("%w (if the server speaks no TLS at this port, %s must be unset)", err, d.opts.Setting)
			}
			return nil, place, fmt.Errorf("tls handshake: %w", err)
		}
		nc = tc
	}
	d.conns.Opened(nc, place.Address, netio.NewGuard(nc, d.opts.Silence, func(silent time.Duration) {
		if d.opts.Vanished != nil {
			d.opts.Vanished(place.Address, silent)
		}
	}))
	return nc, place, nil
}

// isNoTLS reports whether a handshake may have failed because the server speaks no TLS. Redis waits then for the end of
// a line.
func isNoTLS(err error) bool {
	_, noRecord := errors.AsType[tls.RecordHeaderError](err)
	return noRecord || errors.Is(err, context.DeadlineExceeded) || IsCut(err)
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

// Connect opens a bare connection for a client library that does its own handshake. When it is closed, the kernel drops
// what it has not delivered: a script that was given up during a cut must not run when the cut is over, and for example
// queue a waiter that has left.
func (d *Dialer) Connect(ctx context.Context, at topology.Node) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, d.opts.Timeout)
	defer cancel()
	if err := d.reachOf(at).pass(ctx); err != nil {
		return nil, err
	}
	nc, place, err := d.connect(ctx, cancel, at)
	if err != nil {
		d.opts.Resolver.Doubt(place.Address)
		return nil, err
	}
	if tc, ok := Bare(nc).(*net.TCPConn); ok {
		if err := tc.SetLinger(0); err != nil {
			d.HangUp(nc)
			return nil, fmt.Errorf("set linger: %w", err)
		}
	}
	return d.conns.Lend(nc, func(role Role) error {
		if place.Primary && (place.Left() || role == Replica) {
			d.opts.Resolver.Doubt(place.Address)
			return topology.ErrNotPrimary
		}
		return nil
	}), nil
}

// Ask sends one command on a connection without other users, and returns the whole raw reply.
func (d *Dialer) Ask(nc net.Conn, args ...string) ([]byte, error) {
	if err := nc.SetDeadline(time.Now().Add(d.opts.Timeout)); err != nil {
		return nil, err
	}
	if _, err := nc.Write(resp.AppendCommand(nil, args...)); err != nil {
		return nil, fmt.Errorf("ask %s: %w", args[0], err)
	}
	return NewReader(nc).Raw()
}

// LoadingPause is the time between two questions whether Redis still loads. LoadingRound of them are as long as an
// attempt to connect.
const (
	LoadingPause = 50 * time.Millisecond
	LoadingRound = 5
)

// IsLoading asks on a connection without other users whether Redis loads its data.
func (d *Dialer) IsLoading(nc net.Conn) bool {
	reply, err := d.Ask(nc, "PING")
	_ = nc.SetDeadline(time.Time{}) // a connection that has ended says so at its next use
	return err == nil && bytes.HasPrefix(reply, []byte("-LOADING "))
}

// Await has contacts with a server told on a channel of capacity one, until Forget. err is the outcome of an attempt:
// if Redis refused it, only successful contacts are told. It reports false if Redis was reached since.
func (d *Dialer) Await(at topology.Node, tell chan<- struct{}, err error) bool {
	return d.reachOf(at).rest(tell, err)
}

// Forget ends Await.
func (d *Dialer) Forget(at topology.Node, tell chan<- struct{}) { d.reachOf(at).wake(tell) }

// Away reports whether a server could not be reached at the last attempt. Then another attempt is made soon: the
// client of the session that asks gives up now, and will come back.
func (d *Dialer) Away(at topology.Node) bool { return d.reachOf(at).away() }

// Serve says how an open connection ends when its server moves. leave takes no more requests for it, and reports whether
// none is on its way; it is called several times, and not after the connection has been Closed. Then end has it end,
// perhaps more than once, also if the server has moved already. Neither blocks: closing a socket waits for its reader,
// and that one may wait for a client. Requires no locks.
func (d *Dialer) Serve(at topology.Node, nc net.Conn, leave func() (settled bool), end func()) {
	drop := func() {
		unlinger(nc)
		end()
	}
	d.conns.serve(nc, leave, drop)
	if d.IsElsewhere(at, nc) { // Moved may have looked before
		leave()
		drop()
	}
}

const (
	// settleLimit is the time for replies. A server that answers at all needs less, and a server that is gone delays its
	// clients by no more.
	settleLimit = 100 * time.Millisecond

	// lookEvery is the pause between two looks at the requests on their way.
	lookEvery = time.Millisecond
)

// Moved says that the server is at another address now. All connections try that at once. Those to other addresses end;
// it returns when the last one does, or Options.Stop is closed. Requires no locks.
//
// No connection to an old address gets another request. Requests on their way get a short time for their replies,
// because the old server answers them if the move was planned. Then the connections end: a server that has been stopped
// would keep them for ever, because its kernel acknowledges all that it is sent. Connections of which Serve was not
// called end at once; the lock engines, to which they are lent, ask again.
func (d *Dialer) Moved(at topology.Node) {
	place, err := d.opts.Resolver.Resolve(at)
	if err != nil {
		return
	}
	end := time.Now().Add(settleLimit)
	rest := d.conns.leave(d.conns.elsewhere(place.Address), false)
	d.reachOf(at).renew()
	for len(rest) > 0 {
		select {
		case <-time.After(lookEvery):
		case <-d.opts.Stop:
			return
		}
		rest = d.conns.leave(rest, !time.Now().Before(end))
	}
}

// Lost says that a connection was lost: its server may have moved.
func (d *Dialer) Lost(nc net.Conn) { d.opts.Resolver.Doubt(d.conns.At(nc)) }

// IsElsewhere reports whether the server has moved since an open connection was made. A connection to any server has
// found one.
func (d *Dialer) IsElsewhere(at topology.Node, nc net.Conn) bool {
	place, err := d.opts.Resolver.Resolve(at)
	return err == nil && !place.Some && place.Address != d.conns.At(nc)
}

// Abort closes a connection so that the kernel drops what it has not delivered: bytes of a request that was given up
// must not reach Redis after its repetition on another connection.
func Abort(nc net.Conn) {
	unlinger(nc)
	_ = Bare(nc).Close()
}

// unlinger has the kernel drop what it has not delivered when the connection is closed. It does not block.
func unlinger(nc net.Conn) {
	if tc, ok := Bare(nc).(*net.TCPConn); ok {
		_ = tc.SetLinger(0) // best effort: the connection may be gone already
	}
}

// Bare is the socket under TLS. Closing TLS in due form would write once more, and wait for a Redis that does not read.
func Bare(nc net.Conn) net.Conn {
	if t, ok := nc.(*tls.Conn); ok {
		return t.NetConn()
	}
	return nc
}
