package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/lockcmds"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/budget"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// Server accepts clients and serves them from one Redis.
type Server struct {
	opts      Options                 // immutable
	live      atomic.Pointer[Options] // with those that Change has replaced
	changes   lockcmds.Changes
	shared    *session.Proxy
	listeners []*endpoint
	ids       *clients.IDs
	closing   atomic.Bool        // the server is to stop
	stop      chan struct{}      // closed when it stops accepting
	over      chan struct{}      // closed when the drain has ended
	patience  context.Context    // ends when no client is waited for any more
	hurry     context.CancelFunc // ends patience
	engine    *engine.Engine
	tlsTurns  admission.Turns // of TLS handshakes
	tasks     engine.Group    // read loops and connections that are being shut
	accepting sync.WaitGroup

	mu     sync.Mutex
	conns  map[engine.Client]*session.Session
	empty  chan struct{} // closed when the last of conns has gone; nil until the drain waits for that
	closed bool          // empty is closed, and no more are added
}

// New opens the listeners, so that clients can connect as soon as it returns. Run serves them.
func New(opts Options) (*Server, error) {
	opts.Upstream.Logger = opts.Logger.Named("upstream")
	opts.Upstream.Lent = opts.ClientAuth != AuthUpstream
	e := &session.Proxy{}
	opts.Upstream.Demanded = e.EndStrangers
	up, err := upstream.New(opts.Upstream)
	if err != nil {
		return nil, err
	}
	id := uuid.NewString()
	*e = session.Proxy{
		Source: metrics.Source{
			Version: opts.Version, Revision: opts.Revision, UUID: id, Started: time.Now(),
			Upstream: up, Certificates: opts.Certificates, LogDropped: opts.LogDropped,
		},
		Settings: session.Settings{
			ClientAuth: opts.ClientAuth, Limits: opts.Limits, Logger: opts.Logger,
		},
		Entries: session.NewEntries(opts.Logger), Turns: admission.NewTurns(),
	}
	srv := &Server{
		opts: opts, shared: e, ids: clients.NewIDs(), tlsTurns: admission.NewTurns(),
		conns: map[engine.Client]*session.Session{},
	}
	srv.stop, srv.over = make(chan struct{}), make(chan struct{})
	srv.patience, srv.hurry = context.WithCancel(context.Background())
	srv.live.Store(&opts)
	if e.Locks, err = lockcmds.NewRegistry(opts.forEngines(id, e, &srv.changes)); err != nil {
		return nil, err
	}
	e.Budget = budget.New(int64(opts.Limits.Memory), srv.tasks.Start)
	srv.engine, err = engine.New(engine.Options{Tasks: &srv.tasks, Silence: opts.UserTimeout, Logger: opts.Logger})
	if err != nil {
		return nil, err
	}
	e.InForce, e.Loops = srv.limits, srv.engine.Busy
	for _, addr := range opts.Listen {
		addr, optional := strings.CutPrefix(addr, OptionalPrefix)
		ln, err := opts.listen(addr)
		if optional && (errors.Is(err, syscall.EADDRNOTAVAIL) || errors.Is(err, syscall.EAFNOSUPPORT)) {
			continue
		}
		if err != nil {
			srv.Close()
			return nil, fmt.Errorf("listen: %w", err)
		}
		srv.listeners = append(srv.listeners, ln)
	}
	if len(srv.listeners) == 0 {
		srv.Close()
		return nil, errors.New("listen: this machine has none of the addresses")
	}
	return srv, nil
}

// Close gives up a server that will not Run.
func (srv *Server) Close() {
	srv.hurry()
	srv.closeListeners()
	srv.engine.Discard()
	_ = srv.shared.Locks.Close(context.Background()) // there are none
}

// Addrs are the addresses that clients can connect to.
func (srv *Server) Addrs() []net.Addr {
	var addrs []net.Addr
	for _, ln := range srv.listeners {
		addrs = append(addrs, ln.Addr())
	}
	return addrs
}

// Ready reports whether Redis was reachable at the last contact, and if not why.
func (srv *Server) Ready() (bool, error) { return srv.shared.Upstream.Ready() }

// TryOut asks Redis whether it serves the proxy as Options say, and logs what Run logs of Redis at its start. It makes
// the only connections, and excludes Run.
func (srv *Server) TryOut(ctx context.Context) error { return srv.shared.Upstream.TryOut(ctx) }

// Hurry ends the waiting of the drain: DrainDelay, and DrainTimeout. It may be called at any time, and more than once.
func (srv *Server) Hurry() { srv.hurry() }

// Run serves clients until ctx ends, then drains: after DrainDelay it stops accepting, refuses clients that wait for
// locks, and asks all clients to leave. It closes each at a quiet moment, and the rest after DrainTimeout. Senders stop
// before receivers: clients, locks, upstream.
func (srv *Server) Run(ctx context.Context) {
	upstreamCtx, stopUpstream := context.WithCancel(context.Background())
	defer stopUpstream()
	srv.engine.Run()
	srv.tasks.Start(func() { srv.shared.Tick(srv.over) })
	upstreamDone := make(chan struct{})
	go func() {
		defer close(upstreamDone)
		_ = srv.shared.Upstream.Run(upstreamCtx) // it ends only when its context ends
	}()

	for _, ln := range srv.listeners {
		srv.accepting.Go(func() { srv.accept(ln) })
		srv.opts.Logger.Info("listening", zap.String("addr", ln.Addr().String()))
	}
	<-ctx.Done()
	srv.closing.Store(true)
	live := srv.live.Load()
	srv.opts.Logger.Info("draining",
		logging.Seconds("delay", live.DrainDelay), logging.Seconds("timeout", live.DrainTimeout))
	for _, ln := range srv.listeners {
		ln.Yield()
	}
	select {
	case <-time.After(live.DrainDelay):
	case <-srv.patience.Done():
	}
	close(srv.stop)
	srv.lastCall()

	deadline, cancel := context.WithTimeout(srv.patience, live.DrainTimeout)
	defer cancel()
	srv.drain(deadline)
	held, locks := srv.shared.Locks.Held(), srv.Locks(locksNamed)
	srv.closePending()
	cut := srv.closeConns()
	close(srv.over)
	srv.tasks.Wait()
	srv.shared.Inquiries.Wait()
	<-srv.whenEmpty()
	closing, cancel := context.WithTimeout(context.Background(), srv.opts.Upstream.DialTimeout+time.Second)
	defer cancel()
	if err := srv.shared.Locks.Close(closing); err != nil { // Redis does not answer
		srv.opts.Logger.Warn("the clean-up of locks was given up: they end with their leases", zap.Error(err))
	}
	stopUpstream()
	<-upstreamDone
	srv.engine.Stop()
	srv.hurry()
	srv.shared.Entries.Flush()
	srv.opts.Logger.Info("stopped",
		zap.Int("clients_cut", cut), zap.Int("locks_left", held), zap.Strings("locks", lockNames(locks)))
}

var tooManyClients = resp.AppendError(nil, resp.Err, "max number of clients reached")

// arrive admits a client that has connected.
func (srv *Server) arrive(a *pendingConn) {
	srv.shared.Counters.Accepted.Add(1)
	if n := srv.shared.Counters.Clients.Add(1); n > int64(srv.live.Load().Limits.Clients) {
		srv.shared.Counters.Clients.Add(-1)
		srv.shared.Closed(metrics.TooManyClients, a.RemoteAddr().String(), 0)
		if !a.end.tls { // as in Redis: there was no handshake yet
			_, _ = a.Write(tooManyClients) // the connection is closed in any case
		}
		_ = a.Close()
		return
	}
	srv.shared.Clients.Put(a.ID, a)
	go srv.begin(a)
}

// begin waits for a client's first command. From then on the connection is the session's.
func (srv *Server) begin(a *pendingConn) {
	err := a.await()
	if err == nil {
		if err = srv.serve(a); err == nil {
			return
		}
		if !errors.Is(err, errStopped) {
			srv.opts.Logger.Warn("client closed: its socket could not be taken over", zap.Error(err))
		}
	}
	_ = a.Close() // it may be closed already
	srv.shared.Counters.Clients.Add(-1)
	srv.shared.Clients.Remove(a.ID)
}

// serve gives a client to the engine.
func (srv *Server) serve(a *pendingConn) error {
	var s *session.Session
	return srv.engine.Adopt(engine.Arrival{
		Conn: a.stream, Addr: a.Addr, Read: a.buf,
		Open: func(c engine.Client, fd int) engine.Session {
			s = session.New(a.Origin, srv.shared, c)
			if fd != 0 {
				s.FD = fd
			}
			return s
		},
		Opened: func(c engine.Client) error {
			if !srv.enlist(a, c, s) {
				return errStopped
			}
			return nil
		},
		Closed: srv.forget,
	})
}

// errStopped refuses a connection whose first command has come while the server stops, or that CLIENT KILL has ended.
var errStopped = errors.New("the server has stopped accepting")

// enlist notes a connection until forget. It reports false when the server waits for the last one to end already, or
// the client was killed before its first command.
func (srv *Server) enlist(a *pendingConn, c engine.Client, s *session.Session) bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.closed || !a.take() {
		return false
	}
	srv.conns[c] = s
	srv.shared.Clients.Put(s.ID, s)
	return true
}

// forget is called when a connection has ended.
func (srv *Server) forget(c engine.Client) {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	srv.shared.Counters.Clients.Add(-1)
	srv.shared.Clients.Remove(srv.conns[c].ID)
	delete(srv.conns, c)
	srv.closeIfEmptyLocked()
}

func (srv *Server) closeIfEmptyLocked() {
	if srv.empty != nil && len(srv.conns) == 0 && !srv.closed {
		srv.closed = true
		close(srv.empty)
	}
}

// sweepPeriod is the time between two looks at the clients of a drain. Clients that send are closed without a look.
const sweepPeriod = 250 * time.Millisecond

// firstWords is the time in which clients that connected before the listeners closed may send their first command.
const firstWords = 500 * time.Millisecond

// pending reports whether clients are connected that have not sent a command.
func (srv *Server) pending() bool {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	return srv.shared.Counters.Clients.Load() > int64(len(srv.conns))
}

// closePending closes the connections on which no command has come yet.
func (srv *Server) closePending() {
	for c := range srv.shared.Clients.Each(nil) {
		if a, ok := c.(*pendingConn); ok {
			a.KillIf(func(*clients.Info) bool { return true })
		}
	}
}

// drain asks the clients to leave, and closes each at a quiet moment, until all have left or ctx ends.
func (srv *Server) drain(ctx context.Context) {
	until, _ := ctx.Deadline()
	srv.sweep(until)
	srv.shared.Locks.Drain()
	ticker := time.NewTicker(sweepPeriod)
	defer ticker.Stop()
	for begun, empty := time.Now(), (<-chan struct{})(nil); ; {
		switch { // no client comes any more
		case empty != nil:
		case time.Since(begun) >= firstWords:
			srv.closePending()
			empty = srv.whenEmpty()
		case !srv.pending():
			empty = srv.whenEmpty()
		}
		select {
		case <-empty:
			return
		case <-ctx.Done():
			return
		case <-ticker.C:
			srv.sweep(until)
		}
	}
}

// sweep asks the clients to leave that have not been asked, and closes those that are quiet.
func (srv *Server) sweep(until time.Time) {
	srv.mu.Lock()
	all := maps.Clone(srv.conns)
	srv.mu.Unlock()
	for c, s := range all {
		s.Drain(time.Until(until), false)
		c.Flush()
	}
}

// whenEmpty returns a channel that is closed when no connection is left.
func (srv *Server) whenEmpty() <-chan struct{} {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	if srv.empty == nil {
		srv.empty = make(chan struct{})
		srv.closeIfEmptyLocked()
	}
	return srv.empty
}

// locksNamed is the number of locks that the last entry of the log names. They end with their leases, or by GRACE.
const locksNamed = 100

func lockNames(locks []LockStatus) []string {
	keys := make([]string, len(locks))
	for i, l := range locks {
		keys[i] = logging.Shortened(l.Key)
	}
	return keys
}

// closeConns closes the connections that are left, and returns the number of those that were not about to close.
func (srv *Server) closeConns() (cut int) {
	srv.mu.Lock()
	all := maps.Clone(srv.conns)
	srv.mu.Unlock()
	for c, s := range all {
		if !s.Drain(0, true) {
			cut++
		}
		c.Hangup()
	}
	return cut
}
