package session

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/proxy/clients"
	"github.com/lockproxy/lockproxy/internal/proxy/command"
	"github.com/lockproxy/lockproxy/internal/proxy/engine"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// How clients authenticate.
const (
	AuthUpstream = "upstream" // Redis judges the clients' credentials
	AuthProxy    = "proxy"    // the proxy's own credentials are lent to a client until it authenticates
	AuthNone     = "none"     // the proxy's own credentials are lent to every client, even after its own AUTH
)

// Settings are the configuration of sessions.
type Settings struct {
	ClientAuth string // see above
	Limits     Limits
	Logger     *zap.Logger
}

// Limits bound the state that the proxy holds for clients.
type Limits struct {
	Clients      int           // connected at once
	Memory       int           // bytes of buffers of all clients together
	Query        int           // bytes of a client read and not yet parsed
	Unanswered   int           // bytes of a client's commands without a reply after which it is not read
	Output       int           // bytes of replies that a client has not taken
	PubSub       PubSub        // the same of a client with subscriptions
	LargeCommand time.Duration // in which another 64 KiB of a command that is streamed must come
	Handshake    time.Duration // of TLS, and for the PROXY header
}

// PubSub bounds the bytes that a client with subscriptions has not taken, as Redis's client-output-buffer-limit pubsub
// does.
type PubSub struct {
	Hard     int           // at any moment
	Soft     int           // all the time for SoftTime
	SoftTime time.Duration // its resolution is that of Proxy.Clock
}

// Limits are the present limits of sessions.
func (e *Proxy) Limits() *Limits {
	if l := e.changed.Load(); l != nil {
		return l
	}
	return &e.Settings.Limits
}

// SetLimits changes the limits of all sessions.
func (e *Proxy) SetLimits(l Limits) { e.changed.Store(&l) }

// Lends reports whether clients begin with the proxy's own credentials.
func (o *Settings) Lends() bool { return o.ClientAuth != AuthUpstream }

// Proxy has the things that all sessions of a server share. Its numbers are read from some of them.
type Proxy struct {
	metrics.Source
	Settings Settings
	changed  atomic.Pointer[Limits] // nil: as in Settings
	table    atomic.Pointer[command.Table]
	Merger   command.Merger

	Entries *logging.Repeats // the log for entries that clients can cause at will

	Clients   clients.Directory // all connected clients
	Clock     atomic.Int64      // milliseconds since started, as far as idle times need it
	Inquiries engine.Group      // goroutines of Aside
	Turns     admission.Turns   // of those that compute
}

// Policies is the policy table for the commands that Redis has now.
func (e *Proxy) Policies() *command.Table {
	t := e.table.Load()
	if src := e.Upstream.Commands(); t == nil || !t.IsOf(src) {
		t = command.NewTable(src, grammar.Verbs())
		e.table.Store(t)
	}
	return t
}

// Panicked notes a panic on behalf of a client.
func (e *Proxy) Panicked(client string, r any) {
	e.Settings.Logger.Error("BUG: panic in a session",
		zap.String("client", client), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	e.Counters.Closed[metrics.Panic].Add(1)
}

// Aside runs work, whose cost a client chooses, in a goroutine. broken follows if the work panics, or if it does not
// run because the server has ended. Requires no locks.
func (e *Proxy) Aside(client string, work, broken func()) {
	started := e.Inquiries.Start(func() {
		defer func() {
			if r := recover(); r != nil {
				e.Panicked(client, r)
				broken()
			}
		}()
		work()
	})
	if !started {
		broken()
	}
}

// Lists reports whether Redis has a subcommand.
func (e *Proxy) Lists(command, sub string) bool {
	c := e.Upstream.Commands().Lookup(command)
	return c != nil && c.Subcommands[sub] != 0
}

// FirstIdentity is the identity of a new client.
func (e *Proxy) FirstIdentity() upstream.Identity {
	if e.Settings.Lends() {
		return e.Upstream.Own()
	}
	return upstream.Identity{Proto: 2}
}

// Restricts reports whether Redis's narrower limits for clients that must authenticate first apply to an identity.
func (e *Proxy) Restricts(id upstream.Identity) bool {
	return !id.Authenticated() && e.Upstream.NeedsAuth()
}

// EndStrangers closes the connections of all clients that have not logged in: Redis has begun to demand that.
func (e *Proxy) EndStrangers() {
	n := 0
	for c := range e.Clients.Each(nil) {
		c.KillIf(func(of *clients.Info) bool {
			if of.Stranger {
				n++
			}
			return of.Stranger
		})
	}
	e.Settings.Logger.Warn("redis has begun to demand a login (NOAUTH): clients without one are closed", zap.Int("clients", n))
}

// clockPeriod is the resolution of idle times. Reading the system's clock at each command would cost more than the
// command.
const clockPeriod = 250 * time.Millisecond

// Tick keeps the clock until stop is closed.
func (e *Proxy) Tick(stop <-chan struct{}) {
	ticker := time.NewTicker(clockPeriod)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			e.Clock.Store(now.Sub(e.Started).Milliseconds())
		case <-stop:
			return
		}
	}
}

// Counts are the proxy's numbers for the section Clients of INFO.
func (e *Proxy) Counts() clients.Counts {
	return clients.Counts{Clients: e.Clients.Len(), Waiting: e.Locks.Waiting() + e.Upstream.Lanes.HeldBack()}
}
