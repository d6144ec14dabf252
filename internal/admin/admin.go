// Package admin serves what operators look at over HTTP: metrics, health, profiles, and a page of what is going on.
//
//	GET /metrics      Prometheus's text: what proxy.Stats has at that moment, the Go runtime, the process
//	GET /healthz      200 while the process serves at all
//	GET /readyz       200 if Redis answers on a connection of its own and the proxy takes clients, else 503 and why
//	GET /debug/pprof  profiles
//	GET /             clients, lanes, pins and why, held locks
//
// Nothing is counted here: every request reads the proxy's own counters. There is no authentication, and profiles and
// lock names are not for everybody, so an address without a host is on the loopback interface only.
//
// Goroutines: Run serves until its context ends; net/http has one for each connection, and Run waits for them briefly.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"lockproxy/internal/proxy"
)

// Options configure a Server. Listen and Proxy are required.
type Options struct {
	Listen string // host:port; without a host: loopback only
	Proxy  *proxy.Server
	Logger *zap.Logger // nil: no log
}

// Server answers operators.
type Server struct {
	proxy    *proxy.Server // immutable, like all other fields
	log      *zap.Logger
	listener net.Listener
	http     http.Server

	probe sync.Mutex // one question to Redis at a time
}

const (
	// headerLimit bounds a request's header; requests have no body.
	headerLimit = 5 * time.Second
	// closeLimit is how long requests may go on when Run is to end: a profile would take half a minute.
	closeLimit = time.Second
)

// New opens the listener, so that requests can be made as soon as it returns. Run answers them.
func New(opts Options) (*Server, error) {
	if opts.Proxy == nil {
		return nil, errors.New("admin: no proxy")
	}
	host, port, err := net.SplitHostPort(opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	s := &Server{proxy: opts.Proxy, log: opts.Logger}
	metrics := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		collector{opts.Proxy}, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := metrics.Register(c); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
	}
	if s.listener, err = net.Listen("tcp", net.JoinHostPort(host, port)); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	s.http = http.Server{
		Handler:           s.routes(promhttp.HandlerFor(metrics, promhttp.HandlerOpts{})),
		ReadHeaderTimeout: headerLimit,
		ErrorLog:          zap.NewStdLog(opts.Logger),
	}
	return s, nil
}

// Addr is where requests are answered.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Run answers requests until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.log.Info("listening", zap.String("addr", s.Addr().String()))
	served := make(chan error, 1) // the result of Serve
	go func() { served <- s.http.Serve(s.listener) }()
	select {
	case err := <-served:
		return fmt.Errorf("admin: %w", err)
	case <-ctx.Done():
	}
	closing, cancel := context.WithTimeout(context.Background(), closeLimit)
	defer cancel()
	if err := s.http.Shutdown(closing); err != nil {
		_ = s.http.Close() // what is cut off is a profile, or a client that does not read
	}
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Close gives up a server that will not Run.
func (s *Server) Close() error { return s.listener.Close() }

func (s *Server) routes(metrics http.Handler) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	mux.HandleFunc("GET /{$}", s.page)
	mux.HandleFunc("GET /debug/pprof/", pprof.Index)
	mux.HandleFunc("GET /debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("GET /debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("GET /debug/pprof/trace", pprof.Trace)
	return mux
}

// ready asks Redis anew: what was last heard of it may be old when there are no clients.
func (s *Server) ready(w http.ResponseWriter, r *http.Request) {
	if s.proxy.Draining() {
		reply(w, http.StatusServiceUnavailable, "draining")
		return
	}
	s.probe.Lock()
	err := s.proxy.Probe(r.Context())
	s.probe.Unlock()
	if err != nil {
		reply(w, http.StatusServiceUnavailable, err.Error())
		return
	}
	reply(w, http.StatusOK, "ok")
}

func reply(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // who asked may be gone
}
