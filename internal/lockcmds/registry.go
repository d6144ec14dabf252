package lockcmds

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/admission"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

// This file keeps the lock engines of a proxy: one for each identity that uses lock commands, as long as it does. An
// engine has connections of its own to Redis, so their number is bounded, and no client can take all of them.

// EngineID is the user and the database of an engine at Redis. The protocol version does not matter to it.
type EngineID struct {
	User, Password string
	DB             int
}

// An IdentityEngine is the lock engine of one identity.
type IdentityEngine struct {
	*Engine
	id    EngineID // immutable
	owner string   // on whose account it was started; immutable

	// Guarded by Registry.mu.
	users  int       // sessions that have used it and not ended
	unused time.Time // since when users is 0
}

// ID says whose engine it is.
func (e *IdentityEngine) ID() EngineID { return e.id }

// RegistryOptions configure a Registry. All fields but Fleet are required.
type RegistryOptions struct {
	// Engine is what all engines have in common. The Registry sets Redis, Jobs, Waiting, Names, Hot,
	// Forced and Account.
	Engine Options

	Addr    string                                      // of Redis, for messages
	Connect func(ctx context.Context) (net.Conn, error) // to Redis, for the engines' own clients
	Fleet   redislink.Fleet                             // the servers of a cluster; nil: there is one server

	Max    int           // engines at once
	Idle   time.Duration // how long an engine is kept that no session uses
	Logger *zap.Logger
}

// Registry has one lock engine for each identity that uses lock commands. One that is not used any more, and has
// nothing left to do, is dropped after a while: it has two connections to Redis.
type Registry struct {
	opts RegistryOptions
	jobs *jobs.Pool
	wg   sync.WaitGroup

	waiting atomic.Int64 // of all engines
	names   atomic.Int64 // numbers the names of acquires
	hot     Hot

	mu       sync.Mutex
	engines  map[EngineID]*IdentityEngine
	places   *admission.Places
	unused   *admission.Idle[EngineID, *IdentityEngine]
	draining bool
	closed   bool
}

// NewRegistry makes a Registry without engines.
func NewRegistry(opts RegistryOptions) (*Registry, error) {
	pool, err := jobs.New()
	if err != nil {
		return nil, err
	}
	return &Registry{
		opts: opts, jobs: pool, engines: map[EngineID]*IdentityEngine{},
		places: admission.NewPlaces(opts.Max, admission.Share(opts.Max)),
		unused: admission.NewIdle[EngineID, *IdentityEngine](),
	}, nil
}

// Why there is no engine for an identity.
var (
	ErrFull   = errors.New("no lock engine is free for this identity")
	ErrClosed = errors.New("the lock engines have been closed")
)

// Join returns the identity's engine for one more session, starting it on owner's account if need be. Each call is
// paired with one of Leave. It does not block.
func (r *Registry) Join(id EngineID, owner string) (*IdentityEngine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.engines[id]; e != nil {
		r.unused.Remove(e)
		e.users++
		return e, nil
	}
	if r.closed {
		return nil, ErrClosed
	}
	if !r.place(owner) {
		return nil, ErrFull
	}
	engine, err := r.newEngine(id)
	if err != nil {
		r.places.Return(owner)
		return nil, err
	}
	e := &IdentityEngine{Engine: engine, id: id, owner: owner, users: 1}
	r.engines[id] = e
	r.wg.Go(func() {
		// Run ends when Close says so; it reports nothing that its log lines have not said.
		_ = e.Run(context.Background())
	})
	if r.draining {
		e.Drain()
	}
	return e, nil
}

// Leave counts a session out that has ended.
func (r *Registry) Leave(e *IdentityEngine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.users--; e.users == 0 {
		e.unused = time.Now()
		if r.engines[e.id] == e {
			r.unused.Add(e.id, e, e.owner)
		}
		r.dropAfter(r.opts.Idle, e)
	}
}

func (r *Registry) dropAfter(d time.Duration, e *IdentityEngine) {
	time.AfterFunc(d, func() { r.drop(e) })
}

// drop ends an engine that no session has used for a while.
func (r *Registry) drop(e *IdentityEngine) {
	r.mu.Lock()
	idle := r.opts.Idle
	switch {
	case e.users > 0, r.engines[e.id] != e, r.closed, time.Since(e.unused) < idle:
		r.mu.Unlock()
		return
	case !e.Idle():
		r.dropAfter(idle, e)
		r.mu.Unlock()
		return
	}
	r.forget(e)
	r.mu.Unlock()
	r.end(e)
}

// forget removes an engine from those that sessions may join. Requires r.mu.
func (r *Registry) forget(e *IdentityEngine) {
	delete(r.engines, e.id)
	r.unused.Remove(e)
	r.places.Return(e.owner)
}

// end closes an engine that has nothing to do.
func (r *Registry) end(e *IdentityEngine) {
	ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		r.opts.Logger.Warn("closing an unused lock engine failed", zap.Error(err))
	}
}

// maxTries bounds how many engines are looked at to find one that can go.
const maxTries = 16

// place takes a place for owner. An unused engine with nothing left to do may be ended for it. Requires
// r.mu.
func (r *Registry) place(owner string) bool {
	busy := map[*IdentityEngine]bool{}
	defer func() {
		for e := range busy {
			r.unused.Add(e.id, e, e.owner)
		}
	}()
	for range maxTries {
		var e *IdentityEngine
		var found bool
		switch r.places.Take(owner) {
		case admission.Granted:
			return true
		case admission.OverShare:
			e, found = r.unused.EvictOf(owner)
		default:
			e, found = r.unused.Evict(owner)
		}
		switch {
		case !found:
			return false
		case !e.Idle():
			busy[e] = true
		default:
			r.forget(e)
			r.wg.Go(func() { r.end(e) })
		}
	}
	return false
}

// dropLimit bounds the end of an engine that has nothing to do.
const dropLimit = 10 * time.Second

// newEngine makes the engine of an identity, with a way of its own to Redis.
func (r *Registry) newEngine(id EngineID) (*Engine, error) {
	opts := r.opts.Engine
	opts.Redis, opts.Jobs, opts.Waiting = r.newLink(id), r.jobs, &r.waiting
	opts.Names, opts.Hot, opts.Account = &r.names, &r.hot, Account{id.User, id.DB}
	opts.Forced = func(key string, ended script.Forced) { r.forced(id, key, ended) }
	return New(opts)
}

// newLink makes the engine's own way to Redis. A cluster has one database.
func (r *Registry) newLink(id EngineID) redislink.Topology {
	opts := redislink.Options{User: id.User, Password: id.Password, Logger: r.opts.Engine.Logger}
	if r.opts.Fleet != nil {
		return redislink.NewCluster(r.opts.Fleet, opts)
	}
	opts.Addr, opts.Dial, opts.DB = r.opts.Addr, r.opts.Connect, id.DB
	return redislink.New(opts)
}

// Drain refuses all waiters from now on.
func (r *Registry) Drain() {
	r.mu.Lock()
	r.draining = true
	r.mu.Unlock()
	for _, e := range r.all() {
		e.Drain()
	}
}

// Close ends all engines; sessions have ended.
func (r *Registry) Close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	var first error
	for _, e := range r.all() {
		first = cmp.Or(first, e.Close(ctx))
	}
	r.wg.Wait()
	return cmp.Or(first, r.jobs.Close(dropLimit))
}

// HeldBy is how many holds of locks clients of this proxy have, by mode.
func (r *Registry) HeldBy() map[string]int64 {
	all := map[string]int64{}
	for _, kind := range kinds {
		all[kind.Mode()] = 0
	}
	for _, e := range r.all() {
		e.mu.Lock()
		for _, kind := range kinds {
			all[kind.Mode()] += int64(e.table.Count(kind))
		}
		e.mu.Unlock()
	}
	return all
}

// Held is how many holds of locks clients of this proxy have.
func (r *Registry) Held() int {
	n := 0
	for _, e := range r.all() {
		n += e.Holds()
	}
	return n
}

// Waiting is how many clients wait for a lock.
func (r *Registry) Waiting() int { return int(r.waiting.Load()) }

// List lists the locks that clients of this proxy hold, at most that number of each engine.
func (r *Registry) List(most int) []Hold {
	var list []Hold
	for _, e := range r.all() {
		list = append(list, e.List(most)...)
	}
	return list
}

// OldestWait is when the command came that waits for a lock for longest; the zero time: none waits. It costs O(1) for
// each engine.
func (r *Registry) OldestWait() (oldest time.Time) {
	for _, e := range r.all() {
		if t := e.OldestWait(); !t.IsZero() && (oldest.IsZero() || t.Before(oldest)) {
			oldest = t
		}
	}
	return oldest
}

// forced says that the engine of an identity has ended a grant by force. The holder and the waiters may be of other
// identities.
func (r *Registry) forced(by EngineID, key string, ended script.Forced) {
	for _, e := range r.all() {
		if e.id.DB == by.DB && e.id != by {
			e.Forced(key, ended)
		}
	}
}

// all lists the engines. A caller that has set draining or closed misses none, because Join sees the flag. Requires no
// locks.
func (r *Registry) all() []*IdentityEngine {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.engines))
}

// HotLocks are the locks for which clients have waited longest in the last one to two hours, the longest first, at most
// n. of: only those of one account; nil: of all.
func (r *Registry) HotLocks(n int, of *Account) []HotLock {
	now := jobs.Clock(jobs.System{})
	if r.opts.Engine.Clock != nil {
		now = r.opts.Engine.Clock
	}
	return r.hot.Locks(n, now.Now(), of)
}
