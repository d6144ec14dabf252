package proxy

import (
	"runtime/debug"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/proxy/budget"
	"lockproxy/internal/upstream"
)

// env is what all sessions of a server share.
type env struct {
	opts     Options
	upstream *upstream.Upstream
	locks    *lockRegistry
	table    atomic.Pointer[policyTable]
	stats    stats
	budget   *budget.Budget
	started  time.Time
}

// policies is the policy table for the commands that Redis has now.
func (e *env) policies() *policyTable {
	t := e.table.Load()
	if src := e.upstream.Commands(); t == nil || t.source != src {
		t = newPolicyTable(src, lockcmds.Verbs())
		e.table.Store(t)
	}
	return t
}

// panicked notes a panic on behalf of a client.
func (e *env) panicked(client string, r any) {
	e.opts.Logger.Error("BUG: panic in a session", zap.String("client", client), zap.Any("panic", r), zap.ByteString("stack", debug.Stack()))
	e.stats.panics.Add(1)
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
