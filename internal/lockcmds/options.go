package lockcmds

import (
	"cmp"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
	"github.com/lockproxy/lockproxy/internal/watchdog"
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
	// Redis is the engine's own connections: for attempts of waiters, renewals, clean-up and subscriptions. The engine
	// closes them.
	Redis redislink.Topology
	// UUID of this process, 36 characters: the first part of the owner of every session.
	UUID string
	// Jobs runs attempts of waiters, renewals, clean-up. Several engines may share it.
	Jobs jobs.Source
	// Clock is the time that the engine lives in; nil: the system's.
	Clock jobs.Clock

	Defaults // of lock commands; a lease of 0 is 30 s

	// Replicas is how many replicas the server that keeps a lock has, by the word of the topology. 0: it is not known.
	// nil: it never is.
	Replicas func(lock string) int

	// Tests change these.
	fairWait  time.Duration // what deadlines in the fair queue are counted in; 0: 300 s, Redisson's default
	staleHead time.Duration // after this time the head of a free lock's fair queue without a subscriber is stale; 0: 8 s

	// Hot counts the waits for locks, for all engines that share it. nil: they are not counted.
	Hot *Hot

	// Changes has defaults that apply in place of those here. nil: they do not change.
	Changes *Changes

	// Reentries counts and logs the connections that acquire again without OWNER. nil: they are not.
	Reentries *Reentries

	// Waiting counts the waiters of all engines that share it, which MaxWaiters bounds together. nil: of this one.
	Waiting *atomic.Int64

	// Names numbers the names of acquires. Engines that may serve the same session share it. nil: of this one.
	Names *atomic.Int64

	// Forced is told, by a job, of a grant that this engine has ended by force: its holder and its waiters may be of
	// other engines. It must not block. nil: there are no others.
	Forced func(key string, ended script.Forced)

	Logger  *zap.Logger // nil: silent
	Account Account     // of the engine's sessions
	Events  Events
}

// Events are called at what metrics count. They must not block; nil ones are skipped.
type Events struct {
	// A lock was acquired, so long after it was asked for.
	Granted func(v grammar.Verb, waited time.Duration)
	// By a release that granted in the same step, from sending it to its answer.
	HandedOver func(took time.Duration)
	// A waiter has left its wait queue; the time counts from its command.
	Left func(o table.Outcome, waited time.Duration)
	// A hold has ended; the time counts from the command that acquired it.
	Ended   func(end HoldEnd, held time.Duration)
	Renewed func(watchdog.Round) // a batch of renewals has been answered, or has failed
	Attempt func()               // one script for a waiter
	// Refused: a client may not wait. limit is the setting that too many waiters have reached; empty: the proxy stops.
	Refused  func(limit, client string)
	Lost     func(reason string)
	Repaired func() // the fence counter was set to Redis's time, because it cannot have been a fence
}

// minLease leaves a renewal, which is due every third, some round trips.
const minLease = 100 * time.Millisecond

// checked returns the options with their defaults.
func (o Options) checked() (Options, error) {
	switch {
	case o.Redis == nil:
		return o, errors.New("lockcmds: no redis")
	case o.UUID == "":
		return o, errors.New("lockcmds: no UUID")
	case o.Jobs == nil:
		return o, errors.New("lockcmds: no pool of jobs")
	case o.Sync < SyncAll:
		return o, errors.New("lockcmds: strange number of replicas")
	case o.Lease < 0, o.MaxHold < 0, o.fairWait < 0, o.staleHead < 0, o.MaxWaiters < 0,
		o.MaxWaitersPerLock < 0, o.Grace != nil && *o.Grace < 0:
		return o, errors.New("lockcmds: negative option")
	case o.Lease > 0 && o.Lease < minLease:
		return o, fmt.Errorf("lockcmds: lease %v is shorter than %v", o.Lease, minLease)
	}
	o.Lease = cmp.Or(o.Lease, defaultLease)
	o.fairWait = cmp.Or(o.fairWait, defaultFairWait)
	o.staleHead = cmp.Or(o.staleHead, defaultStaleHead)
	if o.Clock == nil {
		o.Clock = jobs.System{}
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Waiting == nil {
		o.Waiting = new(atomic.Int64)
	}
	if o.Names == nil {
		o.Names = new(atomic.Int64)
	}
	return o, nil
}

// Changes is the way by which engines that share it get new Defaults. The zero value has none.
type Changes struct{ now atomic.Pointer[Defaults] }

// Set changes the defaults.
func (c *Changes) Set(d Defaults) { c.now.Store(&d) }

// present returns a function that returns the present defaults. The caller of that function does not change them.
func (o *Options) present() func() *Defaults {
	first := o.Defaults
	if o.Changes == nil {
		return func() *Defaults { return &first }
	}
	now := &o.Changes.now
	return func() *Defaults {
		if d := now.Load(); d != nil {
			return d
		}
		return &first
	}
}
