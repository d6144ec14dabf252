// Command pool has 400 goroutines take turns under one lock, on 16 connections.
//
// LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. Exit codes: 0 done, 1 lost,
// 69 lockproxy cannot be reached.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

const tasks = 400

func main() {
	logging.Disable() // errors are printed here
	url := cmp.Or(os.Getenv("LOCKPROXY_URL"), "redis://127.0.0.1:7379")
	locks, data := client(url), client(cmp.Or(os.Getenv("REDIS_URL"), url))

	ctx := context.Background()
	if err := errors.Join(locks.Ping(ctx).Err(), data.Del(ctx, "pool:count").Err()); err != nil {
		fail(69, fmt.Errorf("no lock: %w", err))
	}
	var (
		inside, most atomic.Int64
		all          sync.WaitGroup
		errs         = make([]error, tasks)
	)
	for i := range errs {
		all.Go(func() {
			time.Sleep(rand.N(time.Second)) // the tasks arrive at random
			errs[i] = withLock(ctx, locks, "pool", func() error {
				most.Store(max(most.Load(), inside.Add(1)))
				defer inside.Add(-1)
				return increment(ctx, data)
			})
		})
	}
	all.Wait()
	count, err := data.Get(ctx, "pool:count").Int()
	if err := errors.Join(append(errs, err)...); err != nil {
		fail(1, fmt.Errorf("lost: %w", err))
	}
	fmt.Fprintf(os.Stdout, "count %d, at most %d inside\n", count, most.Load())
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

// client has 16 connections. A task waits for one of them for a minute.
func client(url string) *redis.Client {
	opts, err := redis.ParseURL(url)
	if err != nil {
		fail(2, err)
	}
	opts.PoolSize, opts.PoolTimeout = 16, time.Minute
	return redis.NewClient(opts)
}

// withLock runs work under a lock. The lock has a connection of its own, which returns to the pool at the end.
func withLock(ctx context.Context, locks *redis.Client, key string, work func() error) (err error) {
	conn := locks.Conn()
	defer func() { _ = conn.Close() }()
	for {
		err := conn.Do(ctx, "LOCK", key, "WAIT", 3000).Err() // less than ReadTimeout, 5 s by default
		if err == nil {
			break
		}
		if !errors.Is(err, redis.Nil) { // null: not in time, so ask again
			return err
		}
	}
	// Also if ctx is done: a connection that returns to the pool with a lock keeps it.
	defer func() { err = errors.Join(err, conn.Do(context.WithoutCancel(ctx), "UNLOCK", key).Err()) }()
	return work()
}

// increment would lose counts without the lock.
func increment(ctx context.Context, data *redis.Client) error {
	seen, err := data.Get(ctx, "pool:count").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return data.Set(ctx, "pool:count", seen+1, 0).Err()
}
