package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"sync"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/admin"
	"lockproxy/internal/certs"
	"lockproxy/internal/embedded"
	"lockproxy/internal/proxy"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
	"lockproxy/internal/upstream/address"
)

// service is the proxy with the servers beside it.
type service struct {
	proxy *proxy.Server
	certs *certs.Store
	admin *admin.Server    // nil: none
	redis *embedded.Server // nil: there is an upstream
	log   *zap.Logger
}

var _ server = (*service)(nil)

// newServer builds the proxy that cfg describes, with its listeners open.
func newServer(cfg Config, log *zap.Logger) (server, error) {
	s := &service{log: log}
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
	limitMemory(available, uint64(cfg.MaxMemory.Of(available)), s.log)
	opts := proxyOptions(cfg, available, s.certs, s.log)
	if cfg.Embedded {
		if s.redis, err = embedded.Start(embedded.Options{}); err != nil {
			return fmt.Errorf("start the embedded redis: %w", err)
		}
		s.log.Warn("serving from the embedded redis: nothing is persisted, all keys and locks end with this process")
		opts.Upstream.Addr = s.redis.Addr()
	}
	if s.proxy, err = proxy.New(opts); err != nil {
		return err
	}
	if cfg.AdminListen != "" {
		s.admin, err = admin.New(admin.Options{
			Listen: cfg.AdminListen, Hosts: cfg.AdminHosts, Pprof: cfg.AdminPprof, Proxy: s.proxy, Logger: s.log.Named("admin"),
		})
	}
	return err
}

// abandon closes what a failed build has opened.
func (s *service) abandon() {
	if s.proxy != nil {
		s.proxy.Close()
	}
	if s.redis != nil {
		s.redis.Close()
	}
}

// Run serves until ctx ends. The server for operators runs until the last client has gone.
func (s *service) Run(ctx context.Context) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	if s.redis != nil {
		defer s.redis.Close()
	}
	if s.admin == nil {
		return s.proxy.Run(ctx)
	}
	adminCtx, stopAdmin := context.WithCancel(context.Background())
	var beside sync.WaitGroup
	var adminErr error
	beside.Go(func() {
		if adminErr = s.admin.Run(adminCtx); adminErr != nil {
			stop(adminErr)
		}
	})
	err := s.proxy.Run(ctx)
	stopAdmin()
	beside.Wait()
	return errors.Join(err, adminErr)
}

// Reload loads certificates again, for connections to come. It logs its outcome.
func (s *service) Reload() {
	s.log.Info("reloading certificates")
	_ = s.certs.Reload() // it has been logged, and the old ones stay
}

// certOptions names the files that are needed.
func certOptions(cfg Config, log *zap.Logger) certs.Options {
	opts := certs.Options{Logger: log.Named("certs")}
	if cfg.servesTLS() {
		opts.Server = &certs.ServerOptions{
			CertFile: cfg.TLS.CertFile, KeyFile: cfg.TLS.KeyFile, CAFile: cfg.TLS.CAFile, AuthClients: cfg.TLS.AuthClients,
		}
	}
	opts.Upstream, opts.Sentinel = cfg.Upstream.tls().options(), cfg.Sentinel.tls().options()
	return opts
}

// proxyOptions translates the configuration, in which zero means zero, into options in which zero means the default.
// available is the memory that this process may have.
func proxyOptions(cfg Config, available uint64, store *certs.Store, log *zap.Logger) proxy.Options {
	announced, _ := address.ParseMap(cfg.Upstream.Map) // it has been verified
	opts := proxy.Options{
		Listen: cfg.Listen,
		Upstream: upstream.Options{
			Addr:              cfg.Upstream.Address,
			User:              string(cfg.Upstream.User),
			Password:          string(cfg.Upstream.Password),
			Map:               announced,
			Sentinel:          upstream.Sentinel{User: string(cfg.Sentinel.User), Password: string(cfg.Sentinel.Password)},
			FailoverWait:      cfg.FailoverWait,
			Lease:             cfg.Lock.Lease,
			DialTimeout:       cfg.DialTimeout,
			KeepAlive:         cfg.TCP.Keepalive,
			UserTimeout:       cfg.TCP.UserTimeout,
			MaxPins:           int(cfg.MaxPins),
			PinWait:           cfg.PinWait,
			MaxPinsPerAddress: int(cfg.MaxPinsPerAddress),
			MaxLogins:         int(cfg.MaxLogins),
			LoginWait:         cfg.LoginWait,
			MaxLanes:          int(cfg.MaxLanes),
		},
		Engine:         cfg.Engine,
		TLS:            store.Server(),
		ProxyProtocol:  cfg.ProxyProtocol,
		UnixSocketPerm: fs.FileMode(cfg.UnixSocketPerm),
		ClientAuth:     cfg.ClientAuth,
		Locks: proxy.Locks{
			Lease:             cfg.Lock.Lease,
			Grace:             cfg.Lock.Grace,
			MaxHold:           cfg.Lock.MaxHold,
			Reentry:           cfg.Lock.Reentry,
			MaxEngines:        int(cfg.MaxLockEngines),
			MaxWaiters:        int(cfg.MaxWaiters),
			MaxWaitersPerLock: int(cfg.MaxWaitersPerLock),
		},
		Limits: proxy.Limits{
			Request:      resp.Limits{MaxBulk: int64(cfg.ProtoMaxBulkLen)},
			Clients:      int(cfg.MaxClients),
			Memory:       cfg.MaxMemory.Of(available),
			Query:        int(cfg.ClientQueryLimit),
			Unanswered:   int(cfg.ClientPendingLimit),
			Output:       int(cfg.ClientOutputLimit),
			LargeCommand: cfg.LargeCommandTimeout,
			FirstCommand: cfg.FirstCommandTimeout,
			Handshake:    cfg.HandshakeTimeout,
		},
		KeepAlive:    cfg.TCP.Keepalive,
		UserTimeout:  cfg.TCP.UserTimeout,
		DrainTimeout: cfg.Drain.Timeout,
		Logger:       log,
		Version:      version,
	}
	if cfg.Upstream.TLS {
		opts.Upstream.TLS = store.Upstream
	}
	if cfg.Sentinel.TLS {
		opts.Upstream.Sentinel.TLS = store.Sentinel
	}
	if cfg.FailoverWait == 0 {
		opts.Upstream.FailoverWait = -1
	}
	if cfg.ClientOutputLimit == 0 {
		opts.Limits.Output = math.MaxInt
	}
	if cfg.TCP.UserTimeout == 0 {
		opts.UserTimeout, opts.Upstream.UserTimeout = -1, -1 // the system's
	}
	if cfg.Drain.Timeout == 0 {
		opts.DrainTimeout = time.Nanosecond
	}
	return opts
}
