// Package proxy is the server: it accepts clients, hands each to an engine with a session of its own, and drains.
//
//	listener ─▶ pendingConn (PROXY header, TLS, first command) ─▶ engine ─bytes─▶ session ─▶ lane, pin or lock engine
//
// # Goroutines
//
//   - Server.accept, one per listener, and Server.begin, one per client until its first command arrives, which also
//     reads the PROXY header and the TLS handshake;
//   - those of package engine, which call into sessions;
//   - session.Proxy.Tick, which keeps the clock for idle times.
//
// # Locks
//
// Server.mu guards the list of connections; sessions are entered without it.
package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/listen"
	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// How clients authenticate.
const (
	// AuthUpstream passes clients' credentials to Redis, which judges them. Nothing is lent.
	AuthUpstream = session.AuthUpstream
	// AuthProxy lends the proxy's own credentials to a client until it authenticates itself.
	AuthProxy = session.AuthProxy
	// AuthNone lends the proxy's own credentials to every client, even after its own AUTH.
	AuthNone = session.AuthNone
)

// Whether connections begin with a PROXY protocol header, version 1 or 2, in which a load balancer names
// its client. Unix sockets never have one. Any peer can claim any address. The address is shown and logged, and
// decides nothing.
const (
	ProxyOff      = "off"
	ProxyOptional = "optional" // without a header, the client is the peer
	ProxyRequired = "required" // a connection without one is closed
)

// OptionalPrefix stands in front of an address that this machine may lack, as in Redis's bind: without it, such an
// address is an error.
const OptionalPrefix = "-"

// Options configure a Server. Zero means zero: the configuration of the program has the defaults and the bounds.
// Listen, Upstream and Logger are required, and so are the limits.
type Options struct {
	Listen   []string // host:port, tls:host:port or unix:/path; behind OptionalPrefix, if the machine may lack the address
	Upstream upstream.Options

	// Sockets opens the addresses; nil: there are none that systemd has passed.
	Sockets *listen.Sockets

	// TLS is for clients that connect to a tls: address. It may choose another config for each handshake.
	TLS *tls.Config

	// ProxyProtocol says whether connections over TCP begin with a PROXY header: ProxyOff, ProxyOptional or
	// ProxyRequired.
	ProxyProtocol string

	ClientAuth string // AuthUpstream, AuthProxy or AuthNone
	Limits     Limits

	Locks      Locks
	MaxEngines int // lock engines, one for each user and database that uses lock commands

	// DrainDelay is the time for which a stopping server accepts clients as before, so that balancers notice that it is
	// not ready. DrainTimeout is the time that clients then have to finish.
	DrainDelay, DrainTimeout time.Duration

	// KeepAlive and UserTimeout detect clients that have vanished without closing the connection. Upstream has them for
	// the connections to Redis.
	KeepAlive, UserTimeout time.Duration

	// Certificates are the ends of the proxy's own certificates, by side, for /metrics. nil: there are none.
	Certificates func() map[string]time.Time

	// LogDropped counts entries that Logger has lost, by kind. nil: none is.
	LogDropped func() map[string]int64

	Logger            *zap.Logger
	Version, Revision string
}

// The parts of Options that sessions and lock engines get as they are.
type (
	// Limits bound the state that the proxy holds for clients.
	Limits = session.Limits

	// PubSub bounds the bytes that a client with subscriptions has not taken.
	PubSub = session.PubSub

	// Locks are the defaults of the lock commands.
	Locks = lockcmds.Defaults
	// Reentry says for whom a connection acquires that names no OWNER.
	Reentry = lockcmds.Reentry
)

// The values of Reentry.
const (
	ReentryAuto       = lockcmds.ReentryAuto
	ReentryConnection = lockcmds.ReentryConnection
	ReentryOwner      = lockcmds.ReentryOwner
)

// SyncAll is the value of Locks.Sync for all replicas that the Sentinels, or the servers of the cluster, know.
const SyncAll = lockcmds.SyncAll

// Change replaces options while the server runs: Locks, Limits, Upstream.Pins, DrainDelay and DrainTimeout.
// They apply to clients and commands to come; limits apply at once. Limits.Memory, and all other options, stay as they
// are.
func (srv *Server) Change(o Options) {
	srv.live.Store(&o)
	srv.shared.SetLimits(o.Limits)
	srv.changes.Set(o.Locks)
	srv.shared.Upstream.Change(o.Upstream.Pins, o.Locks.Lease)
}

// forEngines returns the options of the lock engines. Their defaults are in changes.
func (o *Options) forEngines(
	uuid string, e *session.Proxy, changes *lockcmds.Changes,
) lockcmds.RegistryOptions {
	changes.Set(o.Locks)
	up, counters := e.Upstream, &e.Counters
	events := counters.LockEvents()
	counted := events.Refused
	events.Refused = func(limit, client string) {
		counted(limit, client)
		e.WaitRefused(limit, client)
	}
	all := lockcmds.RegistryOptions{
		Engine: lockcmds.Options{
			UUID:      uuid,
			Defaults:  o.Locks,
			Replicas:  up.Replicas,
			Logger:    o.Logger.Named("locks"),
			Events:    events,
			Changes:   changes,
			Reentries: &lockcmds.Reentries{Counted: counters.Reentered, Logger: o.Logger.Named("locks")},
		},
		Addr:    up.Addr(),
		Connect: func(ctx context.Context) (net.Conn, error) { return up.Connect(ctx, topology.Any) },

		Max: o.MaxEngines, Idle: time.Minute, Logger: o.Logger,
	}
	if up.View() != nil {
		all.Fleet = up
	}
	return all
}

// limits are the limits in force, by setting.
func (srv *Server) limits() map[string]int64 {
	o := srv.live.Load()
	return map[string]int64{
		"max-clients": int64(o.Limits.Clients),
		"max-waiters": int64(o.Locks.MaxWaiters),
		"max-pins":    int64(o.Upstream.Pins.Max),
	}
}
