package main

import (
	"context"
	"fmt"
	"math"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/embedded"
	"lockproxy/internal/proxy"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// newServer builds the proxy that cfg describes, with its listeners open.
func newServer(cfg Config, log *zap.Logger) (server, error) {
	opts := proxyOptions(cfg, log)
	if !cfg.Embedded {
		return newProxy(opts)
	}
	redis, err := embedded.Start(embedded.Options{})
	if err != nil {
		return nil, fmt.Errorf("start the embedded redis: %w", err)
	}
	log.Warn("serving from the embedded redis: nothing is persisted, all keys and locks end with this process")
	opts.Upstream.Addr = redis.Addr()
	srv, err := newProxy(opts)
	if err != nil {
		redis.Close()
		return nil, err
	}
	return withEmbedded{srv, redis}, nil
}

// newProxy keeps a nil *proxy.Server out of the interface.
func newProxy(opts proxy.Options) (server, error) {
	srv, err := proxy.New(opts)
	if err != nil {
		return nil, err
	}
	return srv, nil
}

// withEmbedded is a proxy with the Redis it serves from, which is closed after it.
type withEmbedded struct {
	server
	redis *embedded.Server
}

func (w withEmbedded) Run(ctx context.Context) error {
	defer w.redis.Close()
	return w.server.Run(ctx)
}

// proxyOptions translates the configuration, in which zero means zero, into options in which zero means the default.
func proxyOptions(cfg Config, log *zap.Logger) proxy.Options {
	opts := proxy.Options{
		Listen: cfg.Listen,
		Upstream: upstream.Options{
			Addr:        cfg.Upstream.Address,
			User:        cfg.Upstream.User,
			Password:    string(cfg.Upstream.Password),
			DialTimeout: cfg.DialTimeout,
			KeepAlive:   cfg.TCP.Keepalive,
			UserTimeout: cfg.TCP.UserTimeout,
			MaxPins:     cfg.MaxPins,
			PinWait:     cfg.PinWait,
		},
		Engine:     cfg.Engine,
		ClientAuth: cfg.ClientAuth,
		Locks: proxy.Locks{
			Lease:             cfg.Lock.Lease,
			Grace:             cfg.Lock.Grace,
			MaxHold:           cfg.Lock.MaxHold,
			MaxWaiters:        cfg.MaxWaiters,
			MaxWaitersPerLock: cfg.MaxWaitersPerLock,
		},
		Limits: proxy.Limits{
			Request:      resp.Limits{MaxBulk: int64(cfg.ProtoMaxBulkLen)},
			Clients:      cfg.MaxClients,
			Query:        int(cfg.ClientQueryLimit),
			Output:       int(cfg.ClientOutputLimit),
			FirstCommand: cfg.FirstCommandTimeout,
		},
		KeepAlive:    cfg.TCP.Keepalive,
		UserTimeout:  cfg.TCP.UserTimeout,
		DrainTimeout: cfg.Drain.Timeout,
		Logger:       log,
		Version:      version,
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
