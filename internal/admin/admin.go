// Package admin serves operators over HTTP: metrics, health, profiles, and a page that shows the present state.
//
//	GET /metrics      Prometheus's text: the numbers of metrics.Stats, the Go runtime, the process
//	GET /healthz      200 while the process serves at all
//	GET /readyz       200 if Redis takes writes on a connection of its own and the proxy takes clients, else 503 and why
//	GET /debug/pprof  profiles, if they are enabled
//	GET /             the status page; the next three have its content as JSON
//	GET /locks        the locks that are held or waited for through the proxy
//	GET /hot          the locks that were waited for longest in the last one to two hours
//	GET /clients      the clients
//
// This package counts nothing: every request reads the proxy's own counters. There is no authentication, and lock names
// may be secret. So an address without a host is on the loopback interface only, and a request for the page or its
// tables must ask for a known host.
//
// Every answer comes in bounded time, even if the proxy or Redis hangs. A goroutine of a singleFlight takes locks or
// asks Redis, and a request waits for it for a limited time.
//
// Goroutines: Run serves until its context ends; net/http has one for each connection, each question of a
// singleFlight one. Run waits for them briefly.
package admin

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/listen"
	"github.com/lockproxy/lockproxy/internal/proxy"
)

// Options configure a Server. Listen, Proxy and Logger are required.
type Options struct {
	Listen string // host:port; without a host: loopback only
	Pprof  bool   // serve profiles
	Proxy  *proxy.Server
	Logger *zap.Logger

	// Sockets opens the address; nil: there are none that systemd has passed.
	Sockets *listen.Sockets
}

// Server answers operators.
type Server struct {
	proxy    *proxy.Server // immutable, like all other fields
	log      *zap.Logger
	listener *listen.Listener
	http     http.Server
	life     context.Context // of questions to Redis
	stop     context.CancelFunc
	view     *Source

	// Questions that may hang.
	numbers           collector
	readiness, tables singleFlight
}

const (
	// headerLimit bounds a request's header; requests have no body. writeLimit bounds the answer, profileLimit a
	// profile with its measurement, and idleLimit the time until the next request.
	headerLimit  = 5 * time.Second
	writeLimit   = 10 * time.Second
	profileLimit = 5 * time.Minute
	idleLimit    = 2 * time.Minute
	// headerBytes bounds a request's header, too.
	headerBytes = 16 << 10
	// connectionLimit bounds the connections.
	connectionLimit = 64
	// answerLimit is how long a request waits for the proxy, and readyLimit for Redis.
	answerLimit = 500 * time.Millisecond
	readyLimit  = 900 * time.Millisecond
	// tableLimit is how long a request waits for a table, and holderLimit how long of it for Redis.
	tableLimit  = 3 * time.Second
	holderLimit = 500 * time.Millisecond
	// closeLimit is the time that requests have to finish when Run ends. A profile would take half a minute.
	closeLimit = time.Second
)

// New opens the listener, so that requests can be made as soon as it returns. Run answers them.
func New(opts Options) (*Server, error) {
	host, port, err := net.SplitHostPort(opts.Listen)
	if err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	if host == "" {
		host = "127.0.0.1"
	}
	s := &Server{
		proxy: opts.Proxy, log: opts.Logger, view: newSource(opts.Proxy),
		readiness: newSingleFlight(), tables: newSingleFlight(),
	}
	s.life, s.stop = context.WithCancel(context.Background())
	s.numbers.flight, s.numbers.stats = newSingleFlight(), s.proxy.Stats
	metrics := prometheus.NewRegistry()
	for _, c := range []prometheus.Collector{
		&s.numbers, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
	} {
		if err := metrics.Register(c); err != nil {
			return nil, fmt.Errorf("admin: %w", err)
		}
	}
	if s.listener, err = opts.Sockets.TCP(net.JoinHostPort(host, port), net.KeepAliveConfig{}); err != nil {
		return nil, fmt.Errorf("admin: %w", err)
	}
	scrape := promhttp.HandlerFor(metrics, promhttp.HandlerOpts{EnableOpenMetrics: true})
	s.http = http.Server{
		Handler:           s.routes(scrape, hostNamesFor(host), opts.Pprof),
		ReadHeaderTimeout: headerLimit,
		ReadTimeout:       headerLimit,
		WriteTimeout:      writeLimit,
		IdleTimeout:       idleLimit,
		MaxHeaderBytes:    headerBytes,
		ConnState:         (&connLimiter{Most: connectionLimit}).Track,
		ErrorLog:          zap.NewStdLog(opts.Logger),
	}
	return s, nil
}

// Addr is where requests are answered.
func (s *Server) Addr() net.Addr { return s.listener.Addr() }

// Yield lets the next process open the address. Requests are answered as before.
func (s *Server) Yield() { s.listener.Yield() }

// Run answers requests until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	defer s.stop()
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
		_ = s.http.Close() // this cuts off a profile, or a client that does not read
	}
	s.stop()
	s.numbers.flight.Settle(closeLimit)
	s.readiness.Settle(closeLimit)
	s.tables.Settle(closeLimit)
	if err := <-served; !errors.Is(err, http.ErrServerClosed) {
		return fmt.Errorf("admin: %w", err)
	}
	return nil
}

// Close gives up a server that will not Run.
func (s *Server) Close() error {
	s.stop()
	return s.listener.Close()
}

func (s *Server) routes(metrics http.Handler, hosts hostNames, profiles bool) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", metrics)
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "ok") })
	mux.HandleFunc("GET /readyz", s.ready)
	page := http.NewServeMux()
	servePage(page)
	page.HandleFunc("GET /locks", s.locks)
	page.HandleFunc("GET /clients", s.clients)
	page.HandleFunc("GET /hot", s.hot)
	mux.Handle("/", hosts.Check(page))
	if profiles { // not the command line, which may hold a password
		mux.HandleFunc("GET /debug/pprof/", slowly(pprof.Index, profileLimit))
		mux.HandleFunc("GET /debug/pprof/profile", slowly(pprof.Profile, profileLimit))
		mux.HandleFunc("GET /debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("GET /debug/pprof/trace", slowly(pprof.Trace, profileLimit))
	}
	return mux
}

// slowly lets a handler take longer to answer than others.
func slowly(next http.HandlerFunc, most time.Duration) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		// A test's recorder cannot have a deadline.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(most))
		next(w, r)
	}
}

// ready asks Redis anew. Without clients, the last contact may be old.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) {
	if s.proxy.Draining() {
		reply(w, http.StatusServiceUnavailable, "draining")
		return
	}
	switch err, answered := Ask(s.readiness, readyLimit, func() error { return s.proxy.Probe(s.life) }); {
	case !answered:
		reply(w, http.StatusServiceUnavailable, "redis has not answered within "+readyLimit.String())
	case err != nil:
		reply(w, http.StatusServiceUnavailable, err.Error())
	default:
		reply(w, http.StatusOK, "ok")
	}
}

func reply(w http.ResponseWriter, status int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(text + "\n")) // the client may be gone
}
