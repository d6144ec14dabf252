package proxy

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/lockcmds/jobs"
	"lockproxy/internal/lockcmds/losses"
	"lockproxy/internal/lockcmds/redislink"
	"lockproxy/internal/upstream"
	"lockproxy/internal/upstream/admission"
)

// lockID is who a lock engine is on Redis. The protocol version does not matter to it.
type lockID struct {
	user, password string
	db             int
	era            uint64 // of those without credentials: those who came before Redis demanded some keep their engine
}

func lockIDOf(id upstream.Identity, era uint64) lockID {
	if id.Authenticated() {
		era = 0
	}
	return lockID{id.User, id.Password, id.DB, era}
}

// lockEngine is the lock engine of one identity.
type lockEngine struct {
	*lockcmds.Engine
	id    lockID // immutable
	owner string // on whose account it was started; immutable

	// Guarded by lockRegistry.mu.
	users  int       // sessions that have used it and not ended
	unused time.Time // since when users is 0
}

// lockRegistry has one lock engine for each identity that uses lock commands. One that is not used any more, and has nothing
// left to do, is dropped after a while: it has two connections to Redis.
type lockRegistry struct {
	env  *env
	jobs *jobs.Pool
	wg   sync.WaitGroup

	waiting atomic.Int64   // of all engines
	lost    *losses.Budget // of all sessions

	mu       sync.Mutex
	engines  map[lockID]*lockEngine
	places   *admission.Places
	unused   *admission.Idle[lockID, *lockEngine]
	draining bool
	closed   bool
}

// lockWorkers bounds the attempts for locks that run at once, and in proportion the engines' other jobs. Each is a round trip to
// Redis, so a few hundred keep it busy.
const lockWorkers = 256

func newLockRegistry(e *env) (*lockRegistry, error) {
	pool, err := jobs.New(lockWorkers)
	if err != nil {
		return nil, err
	}
	size := e.opts.Locks.MaxEngines
	return &lockRegistry{
		env: e, jobs: pool, engines: map[lockID]*lockEngine{}, lost: losses.NewBudget(losses.DefaultBudget),
		places: admission.NewPlaces(size, admission.Share(size)), unused: admission.NewIdle[lockID, *lockEngine](),
	}, nil
}

// errEngines refuses a lock engine for want of a place.
var errEngines = errors.New("no lock engine is free for this identity")

// join returns the identity's engine for one more session, starting it on owner's account if need be. Each call is paired with
// one of leave. It does not block.
func (r *lockRegistry) join(id lockID, owner string) (*lockEngine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e := r.engines[id]; e != nil {
		r.unused.Remove(e)
		e.users++
		return e, nil
	}
	if r.closed {
		return nil, upstream.ErrDown
	}
	if !r.room(owner) {
		return nil, errEngines
	}
	engine, err := r.newEngine(id)
	if err != nil {
		r.places.Return(owner)
		return nil, err
	}
	e := &lockEngine{Engine: engine, id: id, owner: owner, users: 1}
	r.engines[id] = e
	r.wg.Go(func() {
		// Run ends when close says so; it reports nothing that its log lines have not said.
		_ = e.Run(context.Background())
	})
	if r.draining {
		e.Drain()
	}
	return e, nil
}

// leave counts a session out that has ended.
func (r *lockRegistry) leave(e *lockEngine) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if e.users--; e.users == 0 {
		e.unused = time.Now()
		if r.engines[e.id] == e {
			r.unused.Add(e.id, e, e.owner)
		}
		r.dropAfter(r.env.opts.lockIdle, e)
	}
}

func (r *lockRegistry) dropAfter(d time.Duration, e *lockEngine) {
	time.AfterFunc(d, func() { r.drop(e) })
}

// drop ends an engine that nobody has used for a while.
func (r *lockRegistry) drop(e *lockEngine) {
	r.mu.Lock()
	idle := r.env.opts.lockIdle
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

// forget takes an engine out of those that are given out. It is called with mu held.
func (r *lockRegistry) forget(e *lockEngine) {
	delete(r.engines, e.id)
	r.unused.Remove(e)
	r.places.Return(e.owner)
}

// end closes an engine that has nothing to do.
func (r *lockRegistry) end(e *lockEngine) {
	ctx, cancel := context.WithTimeout(context.Background(), dropLimit)
	defer cancel()
	if err := e.Close(ctx); err != nil {
		r.env.opts.Logger.Warn("unused lock engine", zap.Error(err))
	}
}

// maxTries bounds how many engines are looked at to find one that can go.
const maxTries = 16

// room takes a place for owner, for which an engine may have to go that nobody uses and that has nothing left to do. It is
// called with mu held.
func (r *lockRegistry) room(owner string) bool {
	busy := map[*lockEngine]bool{}
	defer func() {
		for e := range busy {
			r.unused.Add(e.id, e, e.owner)
		}
	}()
	for range maxTries {
		var e *lockEngine
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

func (r *lockRegistry) newEngine(id lockID) (*lockcmds.Engine, error) {
	o := r.env.opts
	link, err := r.link(id)
	if err != nil {
		return nil, err
	}
	return lockcmds.New(lockcmds.Options{
		Redis:             link,
		UUID:              o.uuid,
		Jobs:              r.jobs,
		Lease:             o.Locks.Lease,
		Grace:             o.Locks.Grace,
		MaxHold:           o.Locks.MaxHold,
		MaxWaiters:        o.Locks.MaxWaiters,
		Waiting:           &r.waiting,
		MaxWaitersPerLock: o.Locks.MaxWaitersPerLock,
		Logger:            o.Logger.Named("locks"),
		Events:            r.env.stats.LockEvents(),
	})
}

// link is the engine's own way to Redis, as that identity.
func (r *lockRegistry) link(id lockID) (*redislink.Client, error) {
	u := r.env.upstream
	return redislink.New(redislink.Options{
		Addr: u.Addr(), Dial: u.Connect, User: id.user, Password: id.password, DB: id.db,
		Logger: r.env.opts.Logger.Named("locks"),
	})
}

// drain refuses all waiters from now on.
func (r *lockRegistry) drain() {
	r.mu.Lock()
	r.draining = true
	engines := r.all()
	r.mu.Unlock()
	for _, e := range engines {
		e.Drain()
	}
}

// close ends all engines; sessions have ended.
func (r *lockRegistry) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	engines := r.all()
	r.mu.Unlock()
	var first error
	for _, e := range engines {
		if err := e.Close(ctx); err != nil && first == nil {
			first = err
		}
	}
	r.wg.Wait()
	if err := r.jobs.Close(dropLimit); err != nil && first == nil {
		first = err
	}
	return first
}

// Held is how many locks clients of this proxy hold.
func (r *lockRegistry) Held() int {
	r.mu.Lock()
	engines := r.all()
	r.mu.Unlock()
	n := 0
	for _, e := range engines {
		n += e.Holds()
	}
	return n
}

// Waiting is how many clients wait for a lock.
func (r *lockRegistry) Waiting() int { return int(r.waiting.Load()) }

// list is what clients of this proxy hold, at most so many of each engine.
func (r *lockRegistry) list(most int) []lockcmds.Held {
	r.mu.Lock()
	engines := r.all()
	r.mu.Unlock()
	var list []lockcmds.Held
	for _, e := range engines {
		list = append(list, e.Held(most)...)
	}
	return list
}

// all is called with mu held.
func (r *lockRegistry) all() []*lockEngine {
	var list []*lockEngine
	for _, e := range r.engines {
		list = append(list, e)
	}
	return list
}
