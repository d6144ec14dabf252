package proxy

import (
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/engines"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/proxy/clients"
	"lockproxy/internal/proxy/command"
	"lockproxy/internal/proxy/status"
	"lockproxy/internal/proxy/tasks"
	"lockproxy/internal/resp"
	"lockproxy/internal/upstream"
)

// settings are what the configuration says of sessions.
type settings struct {
	ClientAuth string // AuthUpstream, AuthProxy or AuthNone
	Limits     sessionLimits
	Logger     *zap.Logger
}

// sessionLimits bound what one client can make its session hold.
type sessionLimits struct {
	Request      resp.Limits
	Query        int           // bytes read and not yet parsed
	Unanswered   int           // bytes of commands without a reply after which the client is not read
	Output       int           // bytes of replies that the client has not taken
	LargeCommand time.Duration // in which another 64 KiB of a command that is streamed must come
}

// lends reports whether clients begin with the proxy's own credentials.
func (o *settings) lends() bool { return o.ClientAuth != AuthUpstream }

// env is what all sessions of a server share.
type env struct {
	opts     settings
	upstream *upstream.Upstream
	locks    *engines.Registry
	table    atomic.Pointer[command.Table]
	stats    status.Counters
	source   status.Source
	budget   *budget.Budget
	started  time.Time

	failedLogins *zap.Logger // the log, as far as a flood of them may fill it

	clients   clients.Directory[visible] // everybody who is connected
	shape     atomic.Pointer[clients.Shape]
	clock     atomic.Int64 // milliseconds since started, as far as idle times need it
	inquiries tasks.Group  // answers to CLIENT LIST and the like that are being made
	listing   sync.Mutex   // held while one of them is, so that many at once cost the memory of one
}

// policies is the policy table for the commands that Redis has now.
func (e *env) policies() *command.Table {
	t := e.table.Load()
	if src := e.upstream.Commands(); t == nil || !t.IsOf(src) {
		t = command.NewTable(src, grammar.Verbs())
		e.table.Store(t)
	}
	return t
}

// panicked notes a panic on behalf of a client.
func (e *env) panicked(client string, r any) {
	e.opts.Logger.Error("BUG: panic in a session", zap.String("client", client), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	e.stats.Panics.Add(1)
}

// lists reports whether Redis has a subcommand.
func (e *env) lists(command, sub string) bool {
	c := e.upstream.Commands().Lookup(command)
	return c != nil && c.Subcommands[sub]
}

// firstIdentity is what a client is before it says anything.
func (e *env) firstIdentity() upstream.Identity {
	if e.opts.lends() {
		return e.upstream.Own()
	}
	return upstream.Identity{Proto: 2}
}

// restricts reports whether Redis's narrower limits for clients that must authenticate first apply to an identity.
func (e *env) restricts(id upstream.Identity) bool {
	return !id.Authenticated() && e.upstream.NeedsAuth()
}

// clockPeriod is how exact idle times are. Asking the system for the time at each command would cost more than the command.
const clockPeriod = 250 * time.Millisecond

// tick keeps the clock until stop is closed.
func (e *env) tick(stop <-chan struct{}) {
	ticker := time.NewTicker(clockPeriod)
	defer ticker.Stop()
	for {
		select {
		case now := <-ticker.C:
			e.clock.Store(now.Sub(e.started).Milliseconds())
		case <-stop:
			return
		}
	}
}

// firstTimeout counts and logs a client that is closed because its first command has not come in time.
func (e *env) firstTimeout(client string) {
	e.stats.FirstTimeouts.Add(1)
	e.opts.Logger.Debug("client closed: no first command in time", zap.String("client", client))
}

// queryLimit counts and logs a client that is closed because what it has sent cannot be worked off.
func (e *env) queryLimit(client string, n int) {
	e.stats.QueryLimit.Add(1)
	e.opts.Logger.Warn("client closed: query buffer limit", zap.String("client", client), zap.Int("bytes", n))
}
