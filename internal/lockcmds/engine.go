package lockcmds

import (
	"context"

	"github.com/panjf2000/ants/v2"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"time"
)

// Options configure an Engine. Redis, UUID and Pool are required; zero values pick the defaults.
type Options struct {
	// Redis says where the engine's own client connects to, and as whom: address, credentials, db, TLS, dialer. How it
	// behaves (one connection, no retries, no cache, small buffers) is set here.
	Redis rueidis.ClientOption
	// UUID of this process, 36 characters: the first part of the owner of every session.
	UUID string
	// Pool runs short jobs: attempts of waiters, renewals, clean-up. It must be non-blocking.
	Pool *ants.Pool

	Lease    time.Duration  // renewed by the watchdog; 0: 30 s
	Grace    *time.Duration // what may be left of a lease after the connection ends; nil: all of it
	MaxHold  time.Duration  // how long the watchdog renews; 0: without a limit
	FairWait time.Duration  // spacing of deadlines in the fair queue; 0: 300 s, Redisson's default

	MaxWaiters        int // of this engine; 0: no limit
	MaxWaitersPerLock int // 0: no limit

	Cluster bool   // names must keep key and channel in one hash slot; fences are counted per hash tag
	Publish string // the command that wakes waiters; empty: PUBLISH

	Logger *zap.Logger // nil: silent
	Events Events
}

// Events are called at what metrics count. They must not block; nil ones are skipped.
type Events struct {
	Granted    func(v Verb, waited time.Duration)
	HandedOver func()
	Lost       func(reason string)
	Attempt    func() // one script call for a waiter
}

// Engine runs the lock commands of all sessions of one identity: ACL user, password and db.
type Engine struct {
	opts Options
}

// New checks the options. It starts nothing: Run does.
func New(opts Options) (*Engine, error) { return &Engine{opts: opts}, nil }

// Run keeps leases and subscriptions alive until ctx ends or Close is called. Call it once.
func (e *Engine) Run(ctx context.Context) error { <-ctx.Done(); return nil }

// Start executes a lock command: it calls s.Script and s.Answer, now or later. Session locked.
func (e *Engine) Start(s Session, c Command) {}

// Ended is called once when the client connection has ended. Session locked.
func (e *Engine) Ended(s Session) {}

// Drain refuses all waiters, and those to come, with -OVERLOADED.
func (e *Engine) Drain() {}

// Close ends Run and waits for it until ctx ends.
func (e *Engine) Close(ctx context.Context) error { return nil }
