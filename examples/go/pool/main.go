// Command pool has eight goroutines share go-redis's pool of connections and take turns under one lock.
//
// A connection is an owner, and a pool lends one connection to many goroutines. So each task names an OWNER of its own, for LOCK and for
// UNLOCK. LOCKPROXY_URL says where lockproxy is. Exit codes: 0 done, 1 lost, 69 lockproxy cannot be reached.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

func main() {
	logging.Disable() // errors are printed here
	url := os.Getenv("LOCKPROXY_URL")
	if url == "" {
		url = "redis://127.0.0.1:7379"
	}
	opts, err := redis.ParseURL(url)
	if err != nil {
		fail(2, err)
	}
	ctx, client := context.Background(), redis.NewClient(opts)
	if err := client.Del(ctx, "pool:count").Err(); err != nil {
		fail(69, fmt.Errorf("no lock: %w", err))
	}
	errs := make([]error, 8)
	var tasks sync.WaitGroup
	for i := range errs {
		tasks.Go(func() {
			for range 5 {
				errs[i] = errors.Join(errs[i], withLock(ctx, client, "pool", increment))
			}
		})
	}
	tasks.Wait()
	count, err := client.Get(ctx, "pool:count").Int()
	if err := errors.Join(append(errs, err)...); err != nil {
		fail(1, fmt.Errorf("lost: %w", err))
	}
	fmt.Fprintln(os.Stdout, "count", count)
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

// withLock runs work under a lock. WAIT stays below ReadTimeout, 5 s by default; go-redis may retry, because every attempt has the same OWNER.
func withLock(ctx context.Context, client *redis.Client, key string, work func(context.Context, *redis.Client) error) error {
	owner := uuid.NewString()
	for {
		err := client.Do(ctx, "LOCK", key, "WAIT", 3000, "OWNER", owner).Err()
		if err == nil {
			break
		}
		if !errors.Is(err, redis.Nil) { // null: not in time
			return err
		}
	}
	return errors.Join(work(ctx, client), client.Do(ctx, "UNLOCK", key, "OWNER", owner).Err())
}

// increment would lose counts without the lock.
func increment(ctx context.Context, client *redis.Client) error {
	seen, err := client.Get(ctx, "pool:count").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return err
	}
	return client.Set(ctx, "pool:count", seen+1, 0).Err()
}
