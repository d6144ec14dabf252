// Command shared reads an index, or rebuilds it: shared, shared rebuild.
//
// Any number read it at the same time (SHARED), and none while it is rebuilt. LOCKPROXY_URL says where lockproxy is; the
// work takes WORK_MS milliseconds. Exit codes: 0 done, 1 the lock was lost and the work does not count, 69 lockproxy
// cannot be reached, 75 the lock was not free in time.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
)

// A rebuild writes two halves, and no reader may see one old and one new. A rebuild that has lost the lock is refused.
var write = redis.NewScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) then return 0 end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], ARGV[2], ARGV[1])
return 1`)

func main() {
	logging.Disable() // errors are printed here
	opts, err := redis.ParseURL(cmp.Or(os.Getenv("LOCKPROXY_URL"), "redis://127.0.0.1:7379"))
	if err != nil {
		fail(2, err)
	}
	opts.MaxRetries = -1 // a retry would ask again on another connection
	ctx, client := context.Background(), redis.NewClient(opts)
	conn := client.Conn() // the lock belongs to this connection

	task, mode := read, []any{"SHARED"}
	if len(os.Args) > 1 && os.Args[1] == "rebuild" {
		task, mode = rebuild, nil
	}
	// WAIT stays below ReadTimeout, 5 s by default.
	fence, err := conn.Do(ctx, append([]any{"LOCK", "index", "WAIT", 2000, "GRACE", 0}, mode...)...).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		fail(75, errors.New("busy: the lock was not free in time"))
	case err != nil:
		fail(69, fmt.Errorf("no lock: %w", err))
	}
	told, err := task(ctx, conn, fence)
	unlocked := conn.Do(ctx, append([]any{"UNLOCK", "index"}, mode...)...).Err() // LOSTLEASE or NOTHELD: the lock was lost
	if err := errors.Join(err, unlocked); err != nil {
		fail(1, fmt.Errorf("lost: %w", err))
	}
	fmt.Fprintln(os.Stdout, told)
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}

func work() error {
	takes, err := time.ParseDuration(cmp.Or(os.Getenv("WORK_MS"), "500") + "ms")
	if err == nil {
		<-time.After(takes)
	}
	return err
}

func read(ctx context.Context, conn *redis.Conn, _ int64) (string, error) {
	first, err := conn.HGet(ctx, "index:data", "first").Result()
	if err := errors.Join(err, work()); err != nil {
		return "", err
	}
	second, err := conn.HGet(ctx, "index:data", "second").Result()
	if err == nil && first != second {
		err = errors.New("the index was rebuilt meanwhile")
	}
	return "read " + first, err
}

func rebuild(ctx context.Context, conn *redis.Conn, fence int64) (string, error) {
	half := func(name string) error {
		written, err := write.Run(ctx, conn, []string{"index:data"}, fence, name).Bool()
		if err == nil && !written {
			err = errors.New("a rebuild with a larger fence has written")
		}
		return err
	}
	if err := half("first"); err != nil {
		return "", err
	}
	if err := work(); err != nil {
		return "", err
	}
	return fmt.Sprintf("rebuilt %d", fence), half("second")
}
