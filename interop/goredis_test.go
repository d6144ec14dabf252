//go:build interop

package interop

import (
	"context"
	"errors"
	"strconv"
	"testing"

	"github.com/redis/go-redis/v9"
)

func TestGoRedis(t *testing.T) {
	upstreams(t, library{open: openGoRedis, own: map[string]func(t *testing.T, url string){
		"transaction": goRedisTransacts,
		"watch":       goRedisWatches,
		"pubsub":      goRedisSubscribes,
	}}.claim)
}

// goRedisSession is one connection of go-redis, out of a pool of its own so that close closes it.
type goRedisSession struct {
	client *redis.Client
	conn   *redis.Conn
}

func openGoRedis(t *testing.T, url string) session {
	t.Helper()
	client := goRedis(t, url)
	return goRedisSession{client: client, conn: client.Conn()}
}

func goRedis(t *testing.T, url string) *redis.Client {
	t.Helper()
	opts, err := redis.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(opts)
	t.Cleanup(func() { _ = client.Close() })
	return client
}

func (s goRedisSession) command(ctx context.Context, words ...string) (any, error) {
	v, err := s.conn.Do(ctx, anys(words)...).Result()
	if errors.Is(err, redis.Nil) {
		return nil, nil
	}
	return v, err
}

func (s goRedisSession) pipeline(ctx context.Context, commands [][]string) []any {
	p := s.conn.Pipeline()
	for _, words := range commands {
		p.Do(ctx, anys(words)...)
	}
	cmds, _ := p.Exec(ctx) // the first error of a command; each has its own
	var outcomes []any
	for _, cmd := range cmds {
		v, err := cmd.(*redis.Cmd).Result()
		outcomes = append(outcomes, outcome(v, err))
	}
	return outcomes
}

func (s goRedisSession) close() {
	_ = s.conn.Close() // back into the pool, which is closed with the client
	_ = s.client.Close()
}

func anys(words []string) []any {
	list := make([]any, len(words))
	for i, word := range words {
		list[i] = word
	}
	return list
}

func goRedisTransacts(t *testing.T, url string) {
	c := goRedis(t, url)
	c.Set(t.Context(), "t", 1, 0)
	err := c.Watch(t.Context(), func(tx *redis.Tx) error {
		n, err := tx.Get(t.Context(), "t").Int()
		if err != nil {
			return err
		}
		_, err = tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Set(t.Context(), "t", n+1, 0)
			p.Incr(t.Context(), "t")
			return nil
		})
		return err
	}, "t")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, c.Get(t.Context(), "t").Val(), "3")
}

func goRedisWatches(t *testing.T, url string) {
	c := goRedis(t, url)
	c.Set(t.Context(), "w", 1, 0)
	err := c.Watch(t.Context(), func(tx *redis.Tx) error {
		c.Set(t.Context(), "w", 2, 0)
		_, err := tx.TxPipelined(t.Context(), func(p redis.Pipeliner) error {
			p.Set(t.Context(), "w", 3, 0)
			return nil
		})
		return err
	}, "w")
	if !errors.Is(err, redis.TxFailedErr) {
		t.Errorf("EXEC after somebody else's write: %v", err)
	}
	equal(t, c.Get(t.Context(), "w").Val(), "2")
}

func goRedisSubscribes(t *testing.T, url string) {
	c := goRedis(t, url)
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	sub := c.Subscribe(ctx, "news")
	defer sub.Close()
	if err := sub.PSubscribe(ctx, "n*s"); err != nil {
		t.Fatal(err)
	}
	receive := func() any {
		t.Helper()
		m, err := sub.Receive(ctx)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for range 2 {
		if _, ok := receive().(*redis.Subscription); !ok {
			t.Fatal("no confirmation of the subscription")
		}
	}
	for i := range 100 {
		equal(t, c.Publish(ctx, "news", i).Val(), int64(2))
	}
	next := map[string]int{}
	for range 200 {
		m, ok := receive().(*redis.Message)
		if !ok {
			t.Fatal("not a message")
		}
		equal(t, m.Payload, strconv.Itoa(next[m.Pattern]))
		next[m.Pattern]++
	}
	equal(t, next, map[string]int{"": 100, "n*s": 100})
	if err := errors.Join(sub.Unsubscribe(ctx), sub.PUnsubscribe(ctx)); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		receive()
	}
	equal(t, c.Publish(ctx, "news", "x").Val(), int64(0))
}
