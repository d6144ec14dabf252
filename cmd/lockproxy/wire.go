package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admin"
	"github.com/lockproxy/lockproxy/internal/certs"
	"github.com/lockproxy/lockproxy/internal/embedded"
	"github.com/lockproxy/lockproxy/internal/listen"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// service is the proxy with the servers beside it.
type service struct {
	proxy *proxy.Server
	certs *certs.Store
	admin *admin.Server    // nil: none
	redis *embedded.Server // nil: there is an upstream
	log   *zap.Logger

	level     zap.AtomicLevel         // of log
	dropped   func() map[string]int64 // entries of log, by kind; nil: none is
	again     func() (Config, error)  // loads the configuration again
	cfg       atomic.Pointer[Config]  // in force; Reload changes it
	available uint64                  // memory that the process may have
}

var _ server = (*service)(nil)

// newServer builds the proxy that cfg describes, with its listeners open. dropped counts entries that the log has lost,
// by kind; nil: none is.
func newServer(cfg Config, log *zap.Logger, dropped func() map[string]int64) (*service, error) {
	s := &service{log: log, dropped: dropped}
	s.cfg.Store(&cfg)
	if err := s.build(cfg); err != nil {
		s.abandon()
		return nil, err
	}
	return s, nil
}

func (s *service) build(cfg Config) error {
	var err error
	if s.certs, err = certs.New(certOptions(cfg, s.log)); err != nil {
		return err
	}
	if err := cfg.allowFiles(); err != nil {
		return err
	}
	available, err := availableMemory()
	if err != nil {
		s.log.Warn("the memory of the machine is unknown", zap.Error(err), zap.Uint64("assumed", available))
	}
	s.available = available
	limitMemory(available, uint64(cfg.MaxMemory.Of(available)), s.log)
	opts := proxyOptions(cfg, available, s.certs, s.log)
	opts.LogDropped = s.dropped
	passed, err := listen.Passed()
	if err != nil {
		return err
	}
	opts.Sockets = listen.NewSockets(passed)
	if cfg.Embedded {
		if s.redis, err = embedded.Start(); err != nil {
			return fmt.Errorf("start the embedded redis: %w", err)
		}
		s.log.Warn("serving from the embedded redis: nothing is persisted, all keys and locks end with this process")
		opts.Upstream.Addr, opts.Upstream.BuiltinCommands = s.redis.Addr(), true
	}
	if s.proxy, err = proxy.New(opts); err != nil {
		return err
	}
	if cfg.AdminListen != "" {
		s.admin, err = admin.New(admin.Options{
			Listen: cfg.AdminListen, Pprof: cfg.AdminPprof,
			Proxy: s.proxy, Logger: s.log.Named("admin"), Sockets: opts.Sockets,
		})
	}
	if left := opts.Sockets.Left(); err == nil && len(left) > 0 {
		return fmt.Errorf("systemd passes sockets that neither listen nor admin-listen names: %s", strings.Join(left, ", "))
	}
	return err
}

// abandon closes what build has opened, of a service that will not Run.
func (s *service) abandon() {
	if s.admin != nil {
		_ = s.admin.Close()
	}
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.redis != nil {
		s.redis.Close()
	}
}

// stopLimit is the time that an end takes at most, besides the drain.
const stopLimit = 30 * time.Second

// Run serves until ctx ends, and drains. The server for operators ends when no more clients are accepted, so that the
// next process can take its port.
func (s *service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if s.redis != nil {
		defer s.redis.Close()
	}
	listen.Ready()
	defer context.AfterFunc(ctx, func() {
		drain := s.cfg.Load().Drain
		listen.Stopping(drain.Delay + drain.Timeout + stopLimit)
	})()
	watching, unwatch := context.WithCancel(context.Background())
	var watch sync.WaitGroup
	watch.Go(func() { listen.Watch(watching, func() { s.proxy.Stats() }) })
	watch.Go(func() {
		new(release).watch(watching, func() int64 {
			stats := s.proxy.Stats()
			return stats.Memory + stats.Clients*perClient
		})
	})
	defer watch.Wait()
	defer unwatch()
	if s.admin == nil {
		s.proxy.Run(ctx)
		return nil
	}
	adminCtx, stopAdmin := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	var adminErr error
	beside.Go(func() {
		if adminErr = s.admin.Run(adminCtx); adminErr != nil {
			stop(adminErr)
		}
	})
	beside.Go(func() {
		<-s.proxy.Stopped()
		stopAdmin()
	})
	defer context.AfterFunc(ctx, s.admin.Yield)()
	s.proxy.Run(ctx)
	beside.Wait()
	return adminErr
}

// Hurry ends the waiting of the drain.
func (s *service) Hurry() { s.proxy.Hurry() }

// reloadLimit is the time after which the log says that a reload has not ended.
const reloadLimit = 10 * time.Second

// Reload reads configuration and certificates again. If one of them is bad, nothing changes. It logs its outcome.
func (s *service) Reload() {
	listen.Reloading()
	defer listen.Ready()
	s.log.Info("reloading")
	defer time.AfterFunc(reloadLimit, func() {
		s.log.Warn("the reload has not ended: a file is not read to its end")
	}).Stop()
	fresh, err := s.again()
	if err != nil {
		s.log.Error("configuration not reloaded, nothing has changed", zap.Error(err))
		return
	}
	next, changed, kept := s.cfg.Load().reloaded(fresh)
	err = next.Verify() // settings that need a restart may be needed by others
	if err == nil {
		err = next.allowFiles()
	}
	if err != nil {
		s.log.Error("configuration not reloaded, nothing has changed", zap.Error(err), zap.Strings("needs_restart", kept))
		return
	}
	if err := s.certs.Reload(); err != nil { // it has been logged
		return
	}
	setLevel(s.level, next.Log)
	opts := proxyOptions(next, s.available, s.certs, s.log)
	s.proxy.Change(opts)
	s.cfg.Store(&next)
	if len(kept) > 0 {
		s.log.Warn("these settings change with a restart only", zap.Strings("settings", kept))
	}
	s.log.Info("reloaded", zap.Strings("changed", changed))
}

// certOptions names the files that are needed.
func certOptions(cfg Config, log *zap.Logger) certs.Options {
	opts := certs.Options{Logger: log.Named("certs")}
	if cfg.servesTLS() {
		opts.Server = &certs.ServerOptions{
			CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, CAFile: cfg.TLS.CAFile, AuthClients: cfg.TLS.AuthClients,
		}
	}
	own := certs.UpstreamOptions{CertFile: cfg.Upstream.CertFile, KeyFile: cfg.Upstream.KeyFile}
	if cfg.Upstream.TLS {
		redis := own
		redis.CAFile, redis.ServerName = cfg.Upstream.CAFile, cfg.Upstream.ServerName
		opts.Upstream = &redis
	}
	if cfg.Sentinel.TLS {
		sentinels := own
		sentinels.CAFile = cfg.Sentinel.CAFile
		opts.Sentinel = &sentinels
	}
	return opts
}

// Limits that are no settings, because no operator has a reason to change them.
const (
	dialTimeout      = 3 * time.Second  // for a connection to Redis
	handshakeTimeout = 10 * time.Second // of TLS with a client, its PROXY header included

	// Lanes: connections to Redis that clients share, one for each user, database and protocol on each event loop. As
	// many lock engines: one for each user and database that uses lock commands.
	maxLanes = 256

	pinWait           = time.Second // for a free pin
	maxWaitersPerLock = 20_000      // clients that wait for one lock

	// Requests read from a client and not yet sent on, as by Redis's default of client-query-buffer-limit.
	queryLimit = Gibibyte

	// Messages that a client with subscriptions has not read, as by Redis's default of client-output-buffer-limit.
	pubsubLimit = 32 * Mebibyte

	// A client must send another 64 KiB of a large command in this time.
	largeCommandTime = 10 * time.Second

	// Connections on which Redis judges AUTH, HELLO and SELECT, and the longest wait for one. Sixteen carry some ten
	// thousand logins a second. A client that waits for ten seconds waits for a Redis that stands still.
	maxLogins = 16
	loginWait = 10 * time.Second

	// Requests of a client that Redis has not answered. Beyond it the client is not read: more would not make it
	// faster, and max-memory bounds all clients together.
	unansweredLimit = 64 * Mebibyte

	// Redis has the same ratio of the two limits of a subscriber, and the same time.
	softShare = 4
	softTime  = time.Minute
)

// proxyOptions hands each setting to the package that uses it. available is the memory that this process may have.
func proxyOptions(cfg Config, available uint64, store *certs.Store, log *zap.Logger) proxy.Options {
	announced, _ := topology.ParseAddressMap(cfg.Upstream.Map) // it has been verified
	opts := proxy.Options{
		Listen: cfg.Listen,
		Upstream: upstream.Options{
			Addr:         cfg.Upstream.Address,
			User:         cfg.Upstream.User,
			Password:     string(cfg.Upstream.Password),
			Map:          announced,
			Sentinel:     upstream.Sentinel{User: cfg.Sentinel.User, Password: string(cfg.Sentinel.Password)},
			FailoverWait: cfg.FailoverWait,
			Lease:        cfg.Lock.Lease,
			Exposed:      cfg.exposed(),
			DialTimeout:  dialTimeout,
			KeepAlive:    cfg.TCP.Keepalive,
			UserTimeout:  cfg.TCP.UserTimeout,
			Pins: upstream.PinLimits{
				Max: int(cfg.MaxPins), Wait: pinWait, MaxLogins: maxLogins, LoginWait: loginWait,
			},
			MaxLanes: maxLanes,
		},
		TLS:           store.Server(),
		ProxyProtocol: cfg.ProxyProtocol,
		ClientAuth:    cfg.ClientAuth,
		Locks: proxy.Locks{
			Lease:             cfg.Lock.Lease,
			Grace:             cfg.Lock.Grace,
			MaxHold:           cfg.Lock.MaxHold,
			Sync:              int(cfg.Lock.Sync),
			Slow:              cfg.Lock.Slow,
			MaxWaiters:        int(cfg.MaxWaiters),
			MaxWaitersPerLock: maxWaitersPerLock,
			Reentry:           proxy.Reentry(cfg.Lock.Reentry),
			NoteHost:          noteHost(cfg.Lock.Note),
		},
		MaxEngines: maxLanes, // they are many if users and databases are
		Limits: proxy.Limits{
			Clients:    int(cfg.MaxClients),
			Memory:     buffersOf(cfg.MaxMemory.Of(available)),
			Query:      int(queryLimit),
			Unanswered: int(unansweredLimit),
			Output:     cfg.ClientOutputLimit.orNone(),
			PubSub: proxy.PubSub{
				Hard: int(pubsubLimit), Soft: int(pubsubLimit / softShare), SoftTime: softTime,
			},
			LargeCommand: largeCommandTime,
			Handshake:    handshakeTimeout,
		},
		KeepAlive:    cfg.TCP.Keepalive,
		UserTimeout:  cfg.TCP.UserTimeout,
		DrainDelay:   cfg.Drain.Delay,
		DrainTimeout: cfg.Drain.Timeout,
		Logger:       log,
		Version:      thisBuild().version,
		Revision:     thisBuild().revision(),
		Certificates: store.Ends,
	}
	if cfg.Upstream.TLS {
		opts.Upstream.TLS = store.Upstream
	}
	if cfg.Sentinel.TLS {
		opts.Upstream.Sentinel.TLS = store.Sentinel
	}
	return opts
}

// noteHost is the host in the notes of locks; empty: they have none.
func noteHost(note string) string {
	if note != noteClient {
		return ""
	}
	host, err := os.Hostname()
	if err != nil {
		return "another host"
	}
	return host
}
