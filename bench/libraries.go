package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	rlock "github.com/redis/rueidis/rueidislock"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

type hist = hdrhistogram.Histogram

// library acquires locks on a Redis. Release is called once.
type library interface {
	acquire(ctx context.Context, key string) (release func(context.Context) error, err error)
	close()
}

// newLibrary sets a library up for a number of clients. Those that ask again and again do so after 1 ms with up to 64
// clients, and so much later with more that their questions alone do not fill Redis's day.
func newLibrary(name, addr string, clients int) (library, error) {
	retry := time.Millisecond * time.Duration(max(1, clients/64))
	switch name {
	case redislock:
		client := plainClient(addr, clients)
		return &bsmLibrary{client, bsm.New(client), retry}, nil
	case redsyncLib:
		client := plainClient(addr, clients)
		return &redsyncLibrary{client, redsync.New(goredis.NewPool(client)), retry}, nil
	case rueidislock:
		locker, err := rlock.NewLocker(rlock.LockerOption{
			ClientOption:   rueidis.ClientOption{InitAddress: []string{addr}},
			KeyMajority:    1,
			KeyValidity:    lease * time.Millisecond,
			NoLoopTracking: true, // as it recommends for this Redis
		})
		if err != nil {
			return nil, fmt.Errorf("rueidislock: %w", err)
		}
		return &rueidisLibrary{locker}, nil
	}
	return nil, fmt.Errorf("no library %q", name)
}

func plainClient(addr string, clients int) *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: clients, PoolTimeout: time.Minute, DisableIdentity: true})
}

type bsmLibrary struct {
	client *redis.Client
	locks  *bsm.Client
	retry  time.Duration
}

func (l *bsmLibrary) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	held, err := l.locks.Obtain(ctx, key, lease*time.Millisecond, &bsm.Options{RetryStrategy: bsm.LinearBackoff(l.retry)})
	if err != nil {
		return nil, err
	}
	return held.Release, nil
}

func (l *bsmLibrary) close() { _ = l.client.Close() }

type redsyncLibrary struct {
	client *redis.Client
	locks  *redsync.Redsync
	retry  time.Duration
}

func (l *redsyncLibrary) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	mutex := l.locks.NewMutex(key, redsync.WithExpiry(lease*time.Millisecond), redsync.WithTries(1<<30), redsync.WithRetryDelay(l.retry))
	if err := mutex.LockContext(ctx); err != nil {
		return nil, err
	}
	return func(ctx context.Context) error {
		_, err := mutex.UnlockContext(ctx)
		return err
	}, nil
}

func (l *redsyncLibrary) close() { _ = l.client.Close() }

type rueidisLibrary struct{ locker rlock.Locker }

func (l *rueidisLibrary) acquire(ctx context.Context, key string) (func(context.Context) error, error) {
	_, cancel, err := l.locker.WithContext(ctx, key)
	if err != nil {
		return nil, err
	}
	return func(context.Context) error { cancel(); return nil }, nil
}

func (l *rueidisLibrary) close() { l.locker.Close() }

// crowd is a number of goroutines that acquire and release by a library.
type crowd struct {
	clients int
	key     func(id int) string

	// Results of the time measured.
	grants, handovers int64
	perClient         []int64
	waits, pairs      *hist

	on     atomic.Bool
	holder atomic.Int64
	mu     sync.Mutex // guards the results
}

// crowd runs c for the planned time.
func (b *bench) crowd(ctx context.Context, f *fleet.Fleet, who string, c *crowd, values map[string]float64) error {
	s := f.Servers[fleet.Direct]
	lib, err := newLibrary(who, s.Addr, c.clients)
	if err != nil {
		return err
	}
	defer lib.close()
	c.perClient, c.waits, c.pairs = make([]int64, c.clients), load.NewHistogram(), load.NewHistogram()

	running, stop := context.WithCancel(ctx)
	defer stop()
	failures := make(chan error, c.clients)
	var group sync.WaitGroup
	for id := range c.clients {
		group.Go(func() {
			if err := c.client(running, lib, id); running.Err() == nil {
				failures <- fmt.Errorf("client %d: %w", id, err)
				stop()
			}
		})
	}
	pause(running, b.warm(c.clients))
	m, err := newMeter(ctx, s)
	if err != nil {
		stop()
		group.Wait()
		return err
	}
	all, scripts, err := fleet.Calls(s.Addr)
	c.on.Store(true)
	pause(running, b.plan.measure)
	c.on.Store(false)
	c.mu.Lock()
	grants := float64(c.grants)
	c.mu.Unlock()
	seconds, meterErr := m.end(ctx, values, grants)
	all2, scripts2, callsErr := fleet.Calls(s.Addr)
	stop()
	group.Wait()
	close(failures)
	if err := errors.Join(<-failures, err, meterErr, callsErr); err != nil {
		return err
	}
	values["rate"] = grants / seconds / 1000
	if grants > 0 { // a crowd can also spend all its time asking
		values["calls"], values["scripts"] = (all2-all)/grants, (scripts2-scripts)/grants
	}
	return nil
}

// pause waits for d or the end of ctx.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// client acquires and releases until that fails, at the latest by the end of ctx.
func (c *crowd) client(ctx context.Context, lib library, id int) error {
	key := c.key(id)
	for {
		asked := time.Now()
		release, err := lib.acquire(ctx, key)
		if err != nil {
			c.mu.Lock() // it still waits: the end of the run has cut it short
			_ = c.waits.RecordValue(int64(time.Since(asked)))
			c.mu.Unlock()
			return err
		}
		waited := time.Since(asked)
		on := c.on.Load()
		other := c.holder.Swap(int64(id)) != int64(id)
		if err := release(context.WithoutCancel(ctx)); err != nil {
			return err
		}
		if !on {
			continue
		}
		c.mu.Lock()
		c.grants++
		c.perClient[id]++
		if other {
			c.handovers++
		}
		_ = c.waits.RecordValue(int64(waited))
		_ = c.pairs.RecordValue(int64(time.Since(asked)))
		c.mu.Unlock()
	}
}
