// Command go does a piece of work under the lock "report", with go-redis.
//
// LOCKPROXY_URL says where lockproxy is, REDIS_URL where the data is: by default behind it. The work takes WORK_MS
// milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy cannot be reached, 75
// another client has the lock.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

var (
	errBusy = errors.New("busy: another client has the lock")
	errLost = errors.New("lost")
	errNone = errors.New("no lock")
)

// write compares fences, as every store of a result should. It refuses the write of a client that has lost the lock meanwhile.
var write = redis.NewScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or 0)
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'by', ARGV[2])
return 1`)

func main() {
	err := run(context.Background())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	switch {
	case err == nil:
	case errors.Is(err, errBusy):
		os.Exit(75)
	case errors.Is(err, errNone):
		os.Exit(69)
	default:
		os.Exit(1)
	}
}

func run(ctx context.Context) error {
	logging.Disable() // errors are printed here
	url := cmp.Or(os.Getenv("LOCKPROXY_URL"), "redis://127.0.0.1:7379")
	where, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), url))
	if err != nil {
		return err
	}
	data := redis.NewClient(where)
	defer func() { _ = data.Close() }()
	opts, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	opts.MaxRetries = -1 // a retry would ask again on another connection
	client := redis.NewClient(opts)
	defer func() { _ = client.Close() }()

	// A lock without PX is renewed while its connection is open, so no other task uses this one.
	conn := client.Conn()
	defer func() { _ = conn.Close() }()

	// WAIT stays below ReadTimeout, 5 s by default. GRACE 0: if this process dies, the lock is free at once.
	fence, err := conn.Do(ctx, "LOCK", "report", "WAIT", 2000, "GRACE", 0).Int64()
	if errors.Is(err, redis.Nil) {
		return errBusy
	}
	if err != nil {
		return fmt.Errorf("%w: %w", errNone, err)
	}
	fmt.Fprintln(os.Stdout, "fence", fence)
	if err := errors.Join(work(ctx, data, fence), release(ctx, conn)); err != nil {
		return err
	}
	fmt.Fprintln(os.Stdout, "done")
	return nil
}

func work(ctx context.Context, data *redis.Client, fence int64) error {
	takes := 500
	if v := os.Getenv("WORK_MS"); v != "" {
		var err error
		if takes, err = strconv.Atoi(v); err != nil {
			return fmt.Errorf("WORK_MS: %w", err)
		}
	}
	<-time.After(time.Duration(takes) * time.Millisecond)
	written, err := write.Run(ctx, data, []string{"report:result"}, fence, "go").Bool()
	if err != nil {
		return fmt.Errorf("write: %w", err)
	}
	if !written {
		return fmt.Errorf("%w: a client with a larger fence has written", errLost)
	}
	return nil
}

func release(ctx context.Context, conn *redis.Conn) error {
	err := conn.Do(ctx, "UNLOCK", "report").Err()
	if redis.HasErrorPrefix(err, "LOSTLEASE") || redis.HasErrorPrefix(err, "NOTHELD") {
		return fmt.Errorf("%w: %w", errLost, err)
	}
	return err
}
