// Package proxy is the server: it accepts clients, hands each to an engine with a session of its own, and drains.
//
//	listener ─▶ pendingConn (PROXY header, TLS, first command) ─▶ engine ─bytes─▶ session ─▶ lane, pin or lock engine
//
// # Goroutines
//
//   - redcon's accept loop, one per listener, and one of redcon's per client until its first command arrives, which
//     also reads the PROXY header and the TLS handshake;
//   - those of package engine, which call into sessions;
//   - shared.Proxy.Tick, which keeps the clock for idle times.
//
// # Locks
//
// Server.mu guards the list of connections; sessions are entered without it.
package proxy

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/listen"
	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/lockcmds/observe"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/shared"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// How clients authenticate.
const (
	// AuthUpstream passes clients' credentials to Redis, which judges them. Nothing is lent.
	AuthUpstream = shared.AuthUpstream
	// AuthProxy lends the proxy's own credentials to a client until it authenticates itself.
	AuthProxy = shared.AuthProxy
	// AuthNone lends the proxy's own credentials to every client, even after its own AUTH.
	AuthNone = shared.AuthNone
)

// Whether connections begin with a PROXY protocol header, version 1 or 2, in which a load balancer names
// its client. Unix sockets never have one. Any peer can claim any address. The address is shown and logged, and
// decides nothing.
const (
	ProxyOff      = "off"
	ProxyOptional = "optional" // without a header, the client is the peer
	ProxyRequired = "required" // a connection without one is closed
)

// The engines that move the bytes of clients.
const (
	// EngineAuto is the event loops where they exist, and goroutines elsewhere.
	EngineAuto = engine.Auto
	// EngineGoroutine gives each client a goroutine.
	EngineGoroutine = engine.Goroutine
	// EngineEpoll serves plain sockets from event loops; TLS still has goroutines. Linux only.
	EngineEpoll = engine.Epoll
)

// Options configure a Server. Listen and Upstream are required; zero values pick the defaults.
type Options struct {
	Listen   []string // host:port, tls:host:port or unix:/path
	Upstream upstream.Options

	// Sockets opens the addresses; nil: there are none that systemd has passed.
	Sockets *listen.Sockets

	// Engine moves clients' bytes: EngineAuto (default), EngineGoroutine or EngineEpoll.
	Engine string

	// TLS is for clients that connect to a tls: address. It may choose another config for each handshake.
	TLS *tls.Config

	// ProxyProtocol says whether connections over TCP begin with a PROXY header: ProxyOff (default), ProxyOptional or
	// ProxyRequired.
	ProxyProtocol string

	// UnixSocketPerm is the mode of unix sockets that are listened on. 0: as the umask has it.
	UnixSocketPerm fs.FileMode

	ClientAuth string // AuthUpstream (default), AuthProxy or AuthNone
	Cluster    Cluster
	Locks      Locks
	Limits     Limits

	// DrainDelay is the time for which a stopping server accepts clients as before, so that balancers notice that it is
	// not ready. 0: none.
	DrainDelay time.Duration

	// DrainTimeout is the time that clients of a stopping server then have to finish. 0: 10 s.
	DrainTimeout time.Duration

	// KeepAlive and UserTimeout detect clients that have vanished without closing the connection. 0: 30 s and 20 s.
	KeepAlive, UserTimeout time.Duration

	// Tracing is told of the ends of waits and holds. nil: there is none.
	Tracing Tracing

	Logger  *zap.Logger // nil: no log
	Version string

	uuid string
	// lockIdle is the time for which an unused lock engine is kept. 0: a minute. Tests shorten it.
	lockIdle time.Duration
}

// Changeable are the options that Server.Change can change. Options has their meaning.
type Changeable struct {
	Locks        Locks
	Limits       Limits
	Upstream     upstream.Changeable
	DrainDelay   time.Duration
	DrainTimeout time.Duration
}

// Changeable is the part of the options that can change.
func (o *Options) Changeable() Changeable {
	return Changeable{Locks: o.Locks, Limits: o.Limits, Upstream: o.Upstream.Changeable(), DrainDelay: o.DrainDelay, DrainTimeout: o.DrainTimeout}
}

// SyncAll is the value of Locks.Sync for all replicas that the Sentinels, or the servers of the cluster, know.
const SyncAll = lockcmds.SyncAll

// Values of Locks.Reentry.
const (
	ReentryConnection = "connection" // also a connection that names no OWNER
	ReentryOwner      = "owner"      // only an OWNER
)

// Values of Cluster.CrossSlot.
const (
	CrossSplit  = "split"  // MGET, MSET, DEL, UNLINK, EXISTS and TOUCH with keys of several slots are divided
	CrossRefuse = "refuse" // they are refused, as by Redis
)

// Cluster says how a cluster is used.
type Cluster struct {
	CrossSlot string // CrossSplit (default) or CrossRefuse
}

func (c *Cluster) setDefaults() error {
	orElse(&c.CrossSlot, CrossSplit)
	if v := c.CrossSlot; v != CrossSplit && v != CrossRefuse {
		return fmt.Errorf("proxy: cluster.cross-slot %q is none of split, refuse", v)
	}
	return nil
}

// Tracing makes spans of waits and holds.
type Tracing interface {
	observe.Observer
	// Counts are the spans that were delivered, and those that were lost.
	Counts() (sent, lost int64)
}

// spans counts spans; nil: there are none.
func (o *Options) spans() func() (sent, lost int64) {
	if o.Tracing == nil {
		return nil
	}
	return o.Tracing.Counts
}

// SlowLog says which waits and holds LOCKSLOW shows.
type SlowLog = observe.Settings

// MaxSlowLog bounds SlowLog.Len.
const MaxSlowLog = observe.MaxLen

// Locks are the defaults of the lock commands.
type Locks struct {
	Lease   time.Duration  // renewed by the watchdog; 0: 30 s
	Grace   *time.Duration // the most that is left of a lease when its connection ends; nil: all of it
	MaxHold time.Duration  // the time for which the watchdog renews; 0: no limit

	Reentry string // the clients that may acquire again while they hold the lock: a Reentry constant; empty: ReentryConnection

	Sync int // how many replicas must have a grant before its client is told; 0: none; SyncAll: all that are known

	Slow SlowLog // which waits and holds LOCKSLOW shows; the zero value: none

	MaxEngines        int // lock engines, one for each user and database that uses lock commands; 0: 256
	MaxWaiters        int // 0: 100,000
	MaxWaitersPerLock int // 0: 20,000
}

// Limits bound the state that the proxy holds for clients.
type Limits struct {
	Request resp.Limits

	Clients      int           // connected at once; 0: 10,000
	Memory       int           // bytes of buffers of all clients together; 0: 1 GiB
	Query        int           // bytes of a client read and not yet parsed; 0: 1 GiB
	Unanswered   int           // bytes of a client's commands without a reply after which it is not read; 0: 64 MiB
	Output       int           // bytes of replies that a client has not taken; 0: 1 GiB
	PubSub       PubSub        // bytes that a client with subscriptions has not taken
	LargeCommand time.Duration // in which another 64 KiB of a command that is streamed must come; 0: 10 s
	FirstCommand time.Duration // from the connection to the first command, TLS included; 0: no limit
	Handshake    time.Duration // of TLS, and for the PROXY header; 0: 10 s
}

// PubSub bounds the bytes that a client with subscriptions has not taken, as Redis's client-output-buffer-limit pubsub
// does.
type PubSub struct {
	Hard     int           // at any moment; 0: 32 MiB
	Soft     int           // all the time for SoftTime; 0: 8 MiB
	SoftTime time.Duration // 0: a minute
}

func (o *Options) setDefaults() error {
	if len(o.Listen) == 0 {
		return errors.New("proxy: no address to listen on")
	}
	orElse(&o.Engine, EngineAuto)
	switch o.ClientAuth {
	case "":
		o.ClientAuth = AuthUpstream
	case AuthUpstream, AuthProxy, AuthNone:
	default:
		return fmt.Errorf("proxy: client-auth %q is none of upstream, proxy, none", o.ClientAuth)
	}
	orElse(&o.ProxyProtocol, ProxyOff)
	switch o.ProxyProtocol {
	case ProxyOff, ProxyOptional, ProxyRequired:
	default:
		return fmt.Errorf("proxy: proxy-protocol %q is none of off, optional, required", o.ProxyProtocol)
	}
	orElse(&o.Locks.Reentry, ReentryConnection)
	switch o.Locks.Reentry {
	case ReentryConnection, ReentryOwner:
	default:
		return fmt.Errorf("proxy: lock.reentry %q is none of connection, owner", o.Locks.Reentry)
	}
	if err := o.Cluster.setDefaults(); err != nil {
		return err
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	orElse(&o.KeepAlive, 30*time.Second)
	orElse(&o.UserTimeout, 20*time.Second)
	orElse(&o.lockIdle, time.Minute)
	o.Upstream.Logger = o.Logger.Named("upstream")
	o.Upstream.Lent = o.ClientAuth != AuthUpstream
	o.uuid = uuid.NewString()
	c := o.Changeable()
	c.setDefaults()
	o.Locks, o.Limits, o.DrainTimeout = c.Locks, c.Limits, c.DrainTimeout
	return nil
}

func (o *Changeable) setDefaults() {
	orElse(&o.DrainTimeout, 10*time.Second)
	orElse(&o.Locks.Lease, 30*time.Second)
	orElse(&o.Locks.Reentry, ReentryConnection)
	orElse(&o.Locks.MaxEngines, 256)
	orElse(&o.Locks.MaxWaiters, 100_000)
	orElse(&o.Locks.MaxWaitersPerLock, 20_000)
	orElse(&o.Limits.Clients, 10_000)
	orElse(&o.Limits.Memory, 1<<30)
	orElse(&o.Limits.Query, 1<<30)
	orElse(&o.Limits.Unanswered, 64<<20)
	orElse(&o.Limits.Output, 1<<30)
	orElse(&o.Limits.PubSub.Hard, 32<<20)
	orElse(&o.Limits.PubSub.Soft, 8<<20)
	orElse(&o.Limits.PubSub.SoftTime, time.Minute)
	orElse(&o.Limits.Handshake, 10*time.Second)
	orElse(&o.Limits.LargeCommand, 10*time.Second)
}

func orElse[T comparable](v *T, def T) {
	var zero T
	if *v == zero {
		*v = def
	}
}

// forSessions returns the options of sessions.
func (o *Options) forSessions() shared.Settings {
	c := shared.Cluster{Refuses: o.Cluster.CrossSlot == CrossRefuse}
	return shared.Settings{ClientAuth: o.ClientAuth, Cluster: c, Limits: o.Limits.forSessions(), Logger: o.Logger}
}

func (l Limits) forSessions() shared.Limits {
	return shared.Limits{Request: l.Request, Query: l.Query, Unanswered: l.Unanswered, Output: l.Output, PubSub: shared.PubSub(l.PubSub), LargeCommand: l.LargeCommand}
}

// Change replaces options while the server runs. They apply to clients and commands to come; limits apply at once. The
// limit of memory, the number of lock engines and the limits of requests do not change.
func (srv *Server) Change(c Changeable) {
	c.setDefaults()
	c.Upstream.Lease = c.Locks.Lease
	srv.live.Store(&c)
	srv.shared.SetLimits(c.Limits.forSessions())
	srv.changes.Set(lockcmds.Defaults{
		Lease: c.Locks.Lease, Grace: c.Locks.Grace, MaxHold: c.Locks.MaxHold, Sync: c.Locks.Sync,
		MaxWaiters: c.Locks.MaxWaiters, MaxWaitersPerLock: c.Locks.MaxWaitersPerLock, Slow: c.Locks.Slow,
	})
	srv.shared.Upstream.Change(c.Upstream)
	srv.reentry.Change(c.Locks.Reentry == ReentryOwner)
}

// forEngines returns the options of the lock engines.
func (o *Options) forEngines(up *upstream.Upstream, e *shared.Proxy, rule *lockcmds.ReentryRule, changes *lockcmds.Changes) lockcmds.RegistryOptions {
	counters := &e.Counters
	events := counters.LockEvents()
	counted := events.Refused
	events.Refused = func(limit, client string) {
		counted(limit, client)
		e.WaitRefused(limit, client)
	}
	all := lockcmds.RegistryOptions{
		Engine: lockcmds.Options{
			UUID:              o.uuid,
			Lease:             o.Locks.Lease,
			Grace:             o.Locks.Grace,
			MaxHold:           o.Locks.MaxHold,
			Sync:              o.Locks.Sync,
			Replicas:          up.Replicas,
			Failover:          up.Failover,
			MaxWaiters:        o.Locks.MaxWaiters,
			MaxWaitersPerLock: o.Locks.MaxWaitersPerLock,
			Slow:              o.Locks.Slow,
			Logger:            o.Logger.Named("locks"),
			Events:            events,
			Changes:           changes,
			Reentry:           rule,
			Told:              o.Tracing,
		},
		Addr: up.Addr(), Connect: up.Connect, Readonly: up.Readonly,
		Max: o.Locks.MaxEngines, Idle: o.lockIdle, Logger: o.Logger,
	}
	if fleet := up.Fleet(); fleet != nil {
		all.Fleet = fleet
	}
	return all
}

// limits are the limits in force, by setting.
func (srv *Server) limits() map[string]int64 {
	c := srv.live.Load()
	return map[string]int64{
		"max-clients": int64(c.Limits.Clients), "max-waiters": int64(c.Locks.MaxWaiters), "max-waiters-per-lock": int64(c.Locks.MaxWaitersPerLock),
		"max-pins": int64(c.Upstream.MaxPins), "max-lanes": int64(srv.opts.Upstream.MaxLanes), "max-logins": int64(c.Upstream.MaxLogins),
		"max-lock-engines": int64(srv.opts.Locks.MaxEngines),
	}
}
