package redislink

import (
	"context"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/resp"
)

// Confirmation is one connection that waits for replicas. WAIT stops a connection, so it has none of the engine's other
// work.
type Confirmation interface {
	// Write runs scripts, and then waits as Wait does. The answers may be error replies. An error wraps ErrUnsent or
	// ErrInDoubt, or is a Refusal of the wait.
	Write(ctx context.Context, calls []Call, replicas int, limit time.Duration) (answers []resp.Value, have int, err error)
	// Wait returns how many replicas have what Write wrote: when there are that many replicas, or limit has passed.
	Wait(ctx context.Context, replicas int, limit time.Duration) (have int, err error)
}

// Call is one run of a script.
type Call struct {
	Script
	Keys, Args []string
}

// Server implements Node.
func (c *Client) Server() Server { return c }

// Confirm implements Server.
func (c *Client) Confirm(f func(Confirmation) error) error {
	return c.redis.Dedicated(func(conn rueidis.DedicatedClient) error { return f(confirmation{conn}) })
}

type confirmation struct{ conn rueidis.DedicatedClient }

func (c confirmation) Write(
	ctx context.Context, calls []Call, replicas int, limit time.Duration,
) (answers []resp.Value, have int, err error) {
	commands := make(rueidis.Commands, 0, len(calls)+1)
	for i, one := range calls {
		if i == 0 || calls[i-1].Script != one.Script { // the server may not know the script
			commands = append(commands, one.byText(c.conn.B()))
		} else {
			commands = append(commands, one.bySHA(c.conn.B()))
		}
	}
	commands = append(commands, c.wait(replicas, limit))
	results := c.conn.DoMulti(ctx, commands...)
	for _, r := range results[:len(calls)] {
		v, err := valueOf(r)
		if err != nil {
			return nil, 0, err
		}
		answers = append(answers, v)
	}
	have, err = count(results[len(calls)])
	return answers, have, err
}

func (c confirmation) Wait(ctx context.Context, replicas int, limit time.Duration) (have int, err error) {
	return count(c.conn.Do(ctx, c.wait(replicas, limit)))
}

// wait is WAIT. A limit of 0 would be none.
func (c confirmation) wait(replicas int, limit time.Duration) rueidis.Completed {
	ms := strconv.FormatInt(max(limit.Milliseconds(), 1), 10)
	return c.conn.B().Arbitrary("WAIT").Args(strconv.Itoa(replicas), ms).Blocking()
}

func count(r rueidis.RedisResult) (int, error) {
	n, err := r.AsInt64()
	if err != nil {
		return 0, classify(err)
	}
	return int(n), nil
}
