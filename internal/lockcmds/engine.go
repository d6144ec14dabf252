package lockcmds

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds/announce"
	"lockproxy/internal/lockcmds/calls"
	"lockproxy/internal/lockcmds/clock"
	"lockproxy/internal/lockcmds/contract"
	"lockproxy/internal/lockcmds/damage"
	"lockproxy/internal/lockcmds/failstop"
	"lockproxy/internal/lockcmds/grammar"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/ledger"
	"lockproxy/internal/lockcmds/owners"
	"lockproxy/internal/lockcmds/queue"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/lockcmds/reentry"
	"lockproxy/internal/watchdog"
)

// Defaults of Options.
const (
	defaultLease    = 30 * time.Second
	defaultFairWait = 300 * time.Second
	// defaultStaleHead is longer than a live Redisson client takes to subscribe after queueing: 7.5 s.
	defaultStaleHead = 8 * time.Second
)

// Options configure an Engine. Redis, UUID and Jobs are required; zero values pick the defaults.
type Options struct {
	// Redis is the engine's own connections: for attempts of waiters, renewals, clean-up and subscriptions. The engine closes them.
	Redis redislink.Topology
	// UUID of this process, 36 characters: the first part of the owner of every session.
	UUID string
	// Jobs runs attempts of waiters, renewals, clean-up. Several engines may share it.
	Jobs jobs.Source
	// Clock is the time that the engine lives in; nil: the system's.
	Clock clock.Clock

	Lease   time.Duration  // renewed by the watchdog; 0: 30 s
	Grace   *time.Duration // what may be left of a lease after the connection ends; nil: all of it
	MaxHold time.Duration  // how long the watchdog renews; 0: without a limit

	// Tests change these.
	fairWait  time.Duration // what deadlines in the fair queue are counted in; 0: 300 s, Redisson's default
	staleHead time.Duration // after this time the head of a free lock's fair queue without a subscriber is stale; 0: 8 s

	MaxWaiters        int // 0: no limit
	MaxWaitersPerLock int // 0: no limit

	// Changes has defaults that apply in place of those here. nil: they do not change.
	Changes *Changes

	// Reentry is the rule about a connection that acquires again without OWNER. nil: it may.
	Reentry *reentry.Rule

	// Waiting counts the waiters of all engines that share it, which MaxWaiters bounds together. nil: of this one.
	Waiting *atomic.Int64

	// Requests numbers the calls of sessions. Engines that may serve the same session share it. nil: of this one.
	Requests *atomic.Int64

	Logger *zap.Logger // nil: silent
	User   string      // the ACL user of the engine's sessions, for the log; empty: the default user
	Events Events
}

// Events are called at what metrics count. They must not block; nil ones are skipped.
type Events struct {
	Granted    func(v grammar.Verb, waited time.Duration) // a lock was acquired, so long after it was asked for
	HandedOver func()                                     // by a release that granted in the same step
	Attempt    func()                                     // one script for a waiter
	// Refused: a client may not wait. limit is the setting that too many waiters have reached; empty: the proxy stops.
	Refused  func(limit, client string)
	Lost     func(reason string)
	Repaired func() // the fence counter was set to Redis's time, because it cannot have been a fence
}

// Engine runs the lock commands of all sessions of one identity.
type Engine struct {
	opts     Options // immutable after New
	log      *zap.Logger
	jobs     jobs.Runner
	losses   *announce.Announcer
	calls    *calls.Calls
	guard    failstop.Guard
	holding  atomic.Int64 // ledger.Len()
	damage   damage.Reporter
	clock    clock.Clock
	own      calls.Own
	watchdog *watchdog.Watchdog

	life context.Context // of the engine's own work; ended by Close or with Run's context
	end  context.CancelFunc
	done chan struct{} // closed when Run has returned

	mu      sync.Mutex // guards the fields below and all clients, holds and waiters
	clients map[uint64]*client
	ledger  *ledger.Ledger
	waits   waitQueues
	started bool
}

// New checks the options. It starts nothing: Run does.
func New(opts Options) (*Engine, error) {
	switch {
	case opts.Redis == nil:
		return nil, errors.New("lockcmds: no redis")
	case opts.UUID == "":
		return nil, errors.New("lockcmds: no UUID")
	case opts.Jobs == nil:
		return nil, errors.New("lockcmds: no pool of jobs")
	case opts.Lease < 0, opts.MaxHold < 0, opts.fairWait < 0, opts.staleHead < 0, opts.MaxWaiters < 0,
		opts.MaxWaitersPerLock < 0, opts.Grace != nil && *opts.Grace < 0:
		return nil, errors.New("lockcmds: negative option")
	case opts.Lease > 0 && opts.Lease < minLease:
		return nil, fmt.Errorf("lockcmds: lease %v is shorter than %v", opts.Lease, minLease)
	}
	if opts.Lease == 0 {
		opts.Lease = defaultLease
	}
	if opts.fairWait == 0 {
		opts.fairWait = defaultFairWait
	}
	if opts.staleHead == 0 {
		opts.staleHead = defaultStaleHead
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Logger == nil {
		opts.Logger = zap.NewNop()
	}
	if opts.Waiting == nil {
		opts.Waiting = new(atomic.Int64)
	}
	if opts.Requests == nil {
		opts.Requests = new(atomic.Int64)
	}
	e := &Engine{
		opts:    opts,
		log:     opts.Logger,
		clock:   opts.Clock,
		own:     calls.Own{Topology: opts.Redis},
		guard:   failstop.Guard{Log: opts.Logger},
		done:    make(chan struct{}),
		clients: make(map[uint64]*client),
		ledger:  ledger.New(newHold),
	}
	e.jobs = opts.Jobs.NewRunner(e.guard.Crash)
	e.waits = waitQueues{
		e: e, place: owners.Shared(opts.UUID, uint32(e.clock.Random(1<<32))),
		set: queue.New(queue.Config{Lease: opts.Lease, Wait: opts.fairWait, StaleHead: opts.staleHead}),
	}
	e.own.Listen(&e.waits)
	e.life, e.end = context.WithCancel(context.Background())
	e.calls = calls.New(calls.Options{Own: e.own, Jobs: e.jobs, Clock: e.clock, Life: e.life, Log: e.log, Guard: e.guard})
	e.damage.Clock, e.damage.Logger, e.damage.Repaired = opts.Clock, opts.Logger, opts.Events.Repaired
	e.losses = announce.New(announce.Options{Jobs: e.jobs, Redis: opts.Redis, Life: e.life, Logger: opts.Logger})
	renewals, err := watchdog.New(watchdog.Options{
		Renew: e.own.Renew, OnLost: e.onLost, Logger: opts.Logger, Now: opts.Clock.Now,
		Submit: func(job func()) error {
			e.jobs.Submit(jobs.Renewal, job)
			return nil
		},
	})
	if err != nil {
		return nil, fmt.Errorf("lockcmds: %w", err)
	}
	e.watchdog = renewals
	return e, nil
}

// minLease leaves a renewal, which is due every third, some round trips.
const minLease = 100 * time.Millisecond

// Step does what Run does with leases, for a caller whose clock does not wait: it tells of what is lost by now and starts the
// renewals that are due. It returns when the next step is due; false: nothing is held. A command, or an answer, may make it due earlier.
func (e *Engine) Step() (due time.Time, ok bool) { return e.watchdog.Step(e.life) }

// Run keeps leases and subscriptions alive until ctx ends or Close is called. Call it once. Commands started before it
// wait for it only if they have to wait for a lock.
func (e *Engine) Run(ctx context.Context) error {
	e.mu.Lock()
	e.started = true
	e.mu.Unlock()
	defer close(e.done)
	stop := context.AfterFunc(ctx, e.end)
	defer stop()
	var link sync.WaitGroup
	link.Go(func() { e.own.Run(e.life) })
	err := e.watchdog.Run(e.life)
	link.Wait()
	e.own.Close()
	e.losses.Close()
	return err
}

// Start executes a lock command: it calls s.Script and s.Reply, now or later. Requires the session lock.
func (e *Engine) Start(s contract.Caller, c grammar.Command) {
	defer e.guard.Stop()
	switch c.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock:
		e.startAcquire(s, c, e.clock.Now(), e)
	case grammar.Unlock:
		e.startRelease(s, c)
	case grammar.ExtendLock:
		e.startExtend(s, c)
	case grammar.LockInfo:
		e.startInfo(s, c)
	case grammar.LockList:
		e.startList(s, c)
	case grammar.ForceUnlock:
		e.startForce(s, c)
	default:
		panic("BUG: " + c.Verb.String() + " was not parsed")
	}
}

// A session that has authenticated as another user belongs to another engine, but its holds are still its own. So the engine that has
// a hold carries out the commands about it, on the session's own connection and with the session's present rights. Everything else,
// waiting too, is done by the session's present engine, its home.

// Keeps reports whether the engine keeps a hold of the session that the command is about.
// Requires the session lock.
func (e *Engine) Keeps(session uint64, cmd grammar.Command) bool {
	defer e.guard.Stop()
	switch cmd.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock, grammar.Unlock, grammar.ExtendLock:
	default:
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clients[session]
	if c == nil {
		return false
	}
	h := e.ledger.Find(ledger.Key{Lock: cmd.Key, Owner: cmp.Or(cmd.Owner, c.Name)})
	return h != nil && c.Has(h)
}

// StartFor is Start for a session whose home is another engine of the same database by now. Requires the session lock.
func (e *Engine) StartFor(s contract.Caller, cmd grammar.Command, home *Engine) {
	defer e.guard.Stop()
	switch cmd.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock:
		e.startAcquire(s, cmd, e.clock.Now(), home)
	default:
		e.Start(s, cmd)
	}
}

// Ended is called once when the client connection has ended: its waiters leave, its leases are no longer renewed, and
// GRACE applies. It does not block. Requires the session lock.
func (e *Engine) Ended(session uint64) {
	defer e.guard.Stop()
	e.mu.Lock()
	c := e.clients[session]
	if c == nil {
		e.mu.Unlock()
		return
	}
	delete(e.clients, session)
	c.ended = true
	if c.ask != nil {
		e.waits.stepLocked(func(q *queue.Set) { q.Left(&c.ask.Waiter) })
	}
	holds := c.Leave()
	e.mu.Unlock()
	e.endHolds(c, holds)
}

// Drain refuses all waiters, and those to come, with -OVERLOADED. Holders keep their leases.
func (e *Engine) Drain() {
	defer e.guard.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.waits.draining = true
	e.waits.stepLocked(func(q *queue.Set) { q.RemoveAll(errDraining) })
}

// Leave forgets a session that holds nothing here and waits for nothing. It reports whether it has; else the session stays known.
// The session may come back. None of its commands is on its way.
func (e *Engine) Leave(session uint64) bool {
	defer e.guard.Stop()
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.clients[session]
	if c == nil {
		return true
	}
	if c.ask != nil || c.Holding() > 0 {
		return false
	}
	delete(e.clients, session)
	return true
}

// Idle reports whether no session is known, and nothing is held, waited for or being cleaned up.
func (e *Engine) Idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.clients)+e.ledger.Len()+e.waits.set.Len() == 0 && !e.calls.Busy()
}

// Close refuses waiters, lets clean-up that is on its way finish, ends Run and waits for it, all until ctx ends. Leases
// are left to run out.
func (e *Engine) Close(ctx context.Context) error {
	e.Drain()
	e.calls.WaitSent(ctx) // they may leave something to clean up
	e.jobs.Wait(ctx)
	e.end()
	e.mu.Lock()
	started := e.started
	e.mu.Unlock()
	if !started {
		e.own.Close()
		return nil
	}
	select {
	case <-e.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the lock engine: %w", context.Cause(ctx))
	}
}
