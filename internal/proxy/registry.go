package proxy

import (
	"context"
	"crypto/tls"
	"net"
	"sync"
	"sync/atomic"

	"github.com/panjf2000/ants/v2"
	"github.com/redis/rueidis"
	"go.uber.org/zap"

	"lockproxy/internal/lockcmds"
	"lockproxy/internal/upstream"
)

// lockID is who a lock engine is on Redis. The protocol version does not matter to it.
type lockID struct {
	user, password string
	db             int
}

// lockRegistry has one lock engine for each identity that has used a lock command.
type lockRegistry struct {
	env  *env
	pool *ants.Pool
	wg   sync.WaitGroup

	waiting atomic.Int64 // of all engines

	mu       sync.Mutex
	engines  map[lockID]*lockcmds.Engine
	draining bool
	closed   bool
}

// poolSize bounds the jobs of the lock engines that run at once. Each is a round trip to Redis, so a few hundred keep it busy.
const poolSize = 256

func newLockRegistry(e *env) (*lockRegistry, error) {
	pool, err := ants.NewPool(poolSize, ants.WithNonblocking(true), ants.WithPanicHandler(func(p any) {
		e.stats.panics.Add(1)
		e.opts.Logger.Error("BUG: panic in a lock job", zap.Any("panic", p), zap.Stack("stack"))
	}))
	if err != nil {
		return nil, err
	}
	return &lockRegistry{env: e, pool: pool, engines: map[lockID]*lockcmds.Engine{}}, nil
}

// engine returns the identity's engine, starting it on first use. It does not block.
func (r *lockRegistry) engine(id upstream.Identity) (*lockcmds.Engine, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := lockID{id.User, id.Password, id.DB}
	if e := r.engines[key]; e != nil {
		return e, nil
	}
	if r.closed {
		return nil, upstream.ErrDown
	}
	e, err := lockcmds.New(r.options(id))
	if err != nil {
		return nil, err
	}
	r.engines[key] = e
	r.wg.Go(func() {
		// Run ends when close says so; it reports nothing that its log lines have not said.
		_ = e.Run(context.Background())
	})
	if r.draining {
		e.Drain()
	}
	return e, nil
}

func (r *lockRegistry) options(id upstream.Identity) lockcmds.Options {
	o := r.env.opts
	return lockcmds.Options{
		Redis:             r.clientOption(id),
		UUID:              o.uuid,
		Pool:              r.pool,
		Lease:             o.Locks.Lease,
		Grace:             o.Locks.Grace,
		MaxHold:           o.Locks.MaxHold,
		MaxWaiters:        o.Locks.MaxWaiters,
		Waiting:           &r.waiting,
		MaxWaitersPerLock: o.Locks.MaxWaitersPerLock,
		Logger:            o.Logger.Named("locks"),
		Events:            r.env.lockEvents(),
	}
}

// clientOption says where the engine's own client connects to, and as whom.
func (r *lockRegistry) clientOption(id upstream.Identity) rueidis.ClientOption {
	u := r.env.upstream
	return rueidis.ClientOption{
		InitAddress: []string{u.Addr()},
		DialCtxFn: func(ctx context.Context, _ string, _ *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return u.Connect(ctx)
		},
		Username: id.User,
		Password: id.Password,
		SelectDB: id.DB,
	}
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
	r.pool.Release()
	return first
}

// held is how many locks clients of this proxy hold.
func (r *lockRegistry) held() int {
	r.mu.Lock()
	engines := r.all()
	r.mu.Unlock()
	n := 0
	for _, e := range engines {
		n += e.Holds()
	}
	return n
}

// list is what clients of this proxy hold.
func (r *lockRegistry) list() []lockcmds.Held {
	r.mu.Lock()
	engines := r.all()
	r.mu.Unlock()
	var list []lockcmds.Held
	for _, e := range engines {
		list = append(list, e.Held()...)
	}
	return list
}

// all is called with mu held.
func (r *lockRegistry) all() []*lockcmds.Engine {
	var list []*lockcmds.Engine
	for _, e := range r.engines {
		list = append(list, e)
	}
	return list
}
