// Command upgrade looks at a counter under a shared lock, then takes the lock alone to change it.
//
// No other client changes the counter between the look and the change. LOCKPROXY_URL says where lockproxy is; the work
// takes WORK_MS milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot
// be reached, 75 the lock was not free in time.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/google/uuid"
	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A change by a client that has lost the lock is refused.
var write = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'count', ARGV[2])
return 1`)

var errBusy = errors.New("the lock was not free in time")

func main() {
	logging.Disable() // errors are printed here
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("LOCKPROXY_URL"), "redis://127.0.0.1:7379"))
	if err != nil {
		fail(2, err)
	}
	takes, err := time.ParseDuration(cmp.Or(os.Getenv("WORK_MS"), "500") + "ms")
	if err != nil {
		fail(2, err)
	}
	opts.MaxRetries = -1 // a retry would ask again on another connection
	ctx, client := context.Background(), redis.NewClient(opts)
	conn := client.Conn() // the lock is renewed while this connection is open
	if err := conn.Ping(ctx).Err(); err != nil {
		fail(69, fmt.Errorf("no lock: %w", err))
	}
	for {
		count, err := change(ctx, conn, takes)
		switch {
		case err == nil:
			fmt.Fprintln(os.Stdout, "count", count)
			return
		case redis.HasErrorPrefix(err, "DEADLOCK"):
			// Another holder is about to change it, and has waited for this one to leave: look again.
		case errors.Is(err, errBusy):
			fail(75, fmt.Errorf("busy: %w", err))
		default:
			fail(1, fmt.Errorf("lost: %w", err))
		}
	}
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

// An upgrade needs a named owner: without one, each LOCK on a library's connection is an owner of its own.
var owner = uuid.NewString()

// lock waits for less than ReadTimeout, 5 s by default.
func lock(ctx context.Context, conn *redis.Conn, mode ...any) (fence int64, err error) {
	fence, err = conn.Do(ctx, append([]any{"LOCK", "counter", "WAIT", 2000, "GRACE", 0, "OWNER", owner}, mode...)...).Int64()
	if errors.Is(err, redis.Nil) {
		err = errBusy
	}
	return fence, err
}

func change(ctx context.Context, conn *redis.Conn, takes time.Duration) (count int, err error) {
	if _, err := lock(ctx, conn, "SHARED"); err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, conn.Do(ctx, "UNLOCK", "counter", "SHARED", "OWNER", owner).Err()) }()
	count, err = conn.HGet(ctx, "counter:data", "count").Int()
	if err != nil && !errors.Is(err, redis.Nil) {
		return 0, err
	}
	<-time.After(takes)           // the look
	fence, err := lock(ctx, conn) // waits until the other holders have left
	if err != nil {
		return 0, err
	}
	defer func() { err = cmp.Or(err, conn.Do(ctx, "UNLOCK", "counter", "OWNER", owner).Err()) }()
	written, err := write.Run(ctx, conn, []string{"counter:data"}, fence, count+1).Bool()
	if err == nil && !written {
		err = errors.New("a change with a larger fence was made")
	}
	return count + 1, err
}
