// Command limit is one of at most five jobs that run at the same time (LIMIT 5), on all machines together.
//
// LOCKPROXY_URL says where lockproxy is; the work takes WORK_MS milliseconds. Exit codes: 0 done, 1 the permit was lost
// and the work does not count, 69 lockproxy cannot be reached, 75 five jobs run.
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
	opts.MaxRetries = -1 // a retry would take one more permit
	ctx, client := context.Background(), redis.NewClient(opts)
	conn := client.Conn() // the permit is renewed while this connection is open

	// WAIT stays below ReadTimeout, 5 s by default.
	fence, err := conn.Do(ctx, "LOCK", "jobs", "LIMIT", 5, "WAIT", 2000, "GRACE", 0).Int64()
	switch {
	case errors.Is(err, redis.Nil):
		fail(75, errors.New("busy: five jobs run"))
	case err != nil:
		fail(69, fmt.Errorf("no lock: %w", err))
	}
	fmt.Fprintln(os.Stdout, "fence", fence)

	<-time.After(takes) // the work

	if err := conn.Do(ctx, "UNLOCK", "jobs", "FENCE", fence).Err(); err != nil { // LOSTLEASE or NOTHELD: it was lost
		fail(1, fmt.Errorf("lost: %w", err))
	}
	fmt.Fprintln(os.Stdout, "done")
}

func fail(code int, err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(code)
}
