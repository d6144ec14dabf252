package lockcmds

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/logging"
	"github.com/lockproxy/lockproxy/internal/watchdog"
)

// Engine runs the lock commands of all sessions of one identity.
type Engine struct {
	keeper

	done chan struct{} // closed when Run has returned
}

// Entries of the log of one kind that are written one by one in a period. The others of the period have one summary.
const (
	entriesMost   = 100
	entriesPeriod = 10 * time.Second
)

// New checks the options. It starts nothing: Run does.
func New(o Options) (*Engine, error) {
	opts, err := o.checked()
	if err != nil {
		return nil, err
	}
	e := &Engine{done: make(chan struct{}), keeper: keeper{
		opts:     opts,
		client:   scriptRunner{Topology: opts.Redis},
		failstop: FailStop{Log: opts.Logger},
		entries:  logging.NewRepeats(opts.Logger, entriesMost, entriesPeriod),
		defaults: opts.present(),
		crowd:    script.CrowdOf(opts.UUID, uint32(opts.Clock.Random(1<<32))),
		table: table.New(table.Config{
			Lease: opts.Lease, Wait: opts.fairWait, StaleHead: opts.staleHead,
		}),
		sessions: make(map[uint64]*clientSession),
		looks:    make(map[string]struct{}),
	}}
	e.jobs = opts.Jobs.NewRunner(e.failstop.Crash)
	e.life, e.end = context.WithCancel(context.Background())
	e.calls = &calls{
		Client: e.client, Jobs: e.jobs, Clock: opts.Clock, Life: e.life, Log: opts.Logger, FailStop: e.failstop,
	}
	e.losses = &announcer{
		jobs: e.jobs, client: e.client, life: e.life, failstop: e.failstop, logger: opts.Logger, entries: e.entries,
	}
	e.watchdog, err = watchdog.New(watchdog.Options{
		Renew: e.renew, OnLost: e.onLost, Renewed: opts.Events.Renewed, Logger: opts.Logger, Now: opts.Clock.Now,
		Submit: func(job func()) { e.jobs.Submit(jobs.Renewal, job) },
	})
	if err != nil {
		return nil, fmt.Errorf("lockcmds: %w", err)
	}
	e.confirm = newConfirmer(e.life, e.jobs, opts.Clock)
	e.client.Listen(listener{&e.keeper})
	return e, nil
}

// Step does what Run does with leases, for a caller whose clock does not wait: it tells of what is lost by now and
// starts the renewals that are due. It returns when the next step is due; false: nothing is held. A command, or an
// answer, may make it due earlier.
func (e *Engine) Step() (due time.Time, ok bool) { return e.watchdog.Step(e.life) }

// Run keeps leases and subscriptions alive until ctx ends or Close is called. It is called once. Commands started before it
// wait for it only if they have to wait for a lock.
func (e *Engine) Run(ctx context.Context) error {
	defer close(e.done)
	stop := context.AfterFunc(ctx, e.end)
	defer stop()
	e.client.Node(script.ForcedChannel).Subscribe(script.ForcedChannel)
	var link sync.WaitGroup
	link.Go(func() { e.client.Run(e.life) })
	err := e.watchdog.Run(e.life)
	link.Wait()
	e.client.Close()
	e.entries.Flush()
	return err
}

// Start executes a lock command: it calls s.Script and s.Reply, now or later. Requires the session lock.
func (e *Engine) Start(s contract.Caller, c grammar.Command) {
	defer e.failstop.Guard()
	switch c.Verb {
	case grammar.Lock, grammar.TryLock, grammar.FairLock:
		e.startAcquire(&s, &c)
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

// Leave forgets a session that holds nothing here and waits for nothing. It reports whether it has; else the session
// stays known. The session may come back. None of its commands is on its way.
func (e *Engine) Leave(session uint64) bool {
	defer e.failstop.Guard()
	e.mu.Lock()
	defer e.mu.Unlock()
	if c := e.sessions[session]; c != nil && (c.asks != nil || c.Holding() > 0) {
		return false
	}
	delete(e.sessions, session)
	return true
}

// Idle reports whether no session is known, and nothing is held, waited for or being cleaned up. It asks in the order
// in which a lock goes from a waiter to a holder, and from there to a rollback.
func (e *Engine) Idle() bool {
	e.mu.Lock()
	idle := len(e.sessions)+e.table.Waiters()+len(e.table.Holds()) == 0
	e.mu.Unlock()
	return idle && !e.confirm.Busy() && !e.calls.Busy()
}

// Close refuses waiters, lets clean-up that is on its way finish, ends Run and waits for it, all until ctx ends. Leases
// are left to run out.
func (e *Engine) Close(ctx context.Context) error {
	e.Drain()
	e.confirm.Close()     // sessions have ended
	e.calls.WaitSent(ctx) // they may leave something to clean up
	e.jobs.Wait(ctx)
	cut := context.Cause(ctx) // not nil: clean-up is given up
	e.end()
	select {
	case <-e.done:
	case <-ctx.Done():
		cut = context.Cause(ctx)
	}
	if cut != nil {
		return fmt.Errorf("close the lock engine: %w", cut)
	}
	return nil
}
