//go:build interop

package interop

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

func TestGoRedis(t *testing.T) {
	upstreams(t, library{open: openGoRedis, own: map[string]func(t *testing.T, url string){
		"connect":      goRedisConnects,
		"pipeline":     goRedisPipelines,
		"transaction":  goRedisTransacts,
		"watch":        goRedisWatches,
		"pubsub":       goRedisSubscribes,
		"blocking-pop": goRedisPops,
		"script":       goRedisScripts,
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

func goRedisConnects(t *testing.T, url string) {
	c := goRedis(t, url)
	equal(t, c.Ping(t.Context()).Val(), "PONG")
	for key, value := range map[string]string{"bytes": everyByte(), "big": strings.Repeat("0123456789abcdef", 65536)} {
		equal(t, c.Set(t.Context(), key, value, 0).Val(), "OK")
		equal(t, c.Get(t.Context(), key).Val(), value)
	}
	if err := c.Get(t.Context(), "none").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("GET of no key: %v", err)
	}
}

func everyByte() string {
	b := make([]byte, 256)
	for i := range b {
		b[i] = byte(i)
	}
	return string(b)
}

func goRedisPipelines(t *testing.T, url string) {
	c := goRedis(t, url)
	var values []*redis.StringCmd
	var wrong *redis.IntCmd
	_, err := c.Pipelined(t.Context(), func(p redis.Pipeliner) error {
		for i := range 1000 {
			p.Set(t.Context(), "p:"+strconv.Itoa(i), i, 0)
			values = append(values, p.Get(t.Context(), "p:"+strconv.Itoa(i)))
			if i == 500 {
				wrong = p.LPush(t.Context(), "p:499", "x")
			}
		}
		return nil
	})
	if err == nil || wrong.Err() == nil || !strings.HasPrefix(wrong.Err().Error(), "WRONGTYPE") {
		t.Errorf("the pipeline's error: %v, the wrong command's: %v", err, wrong.Err())
	}
	for i, v := range values {
		equal(t, v.Val(), strconv.Itoa(i))
	}
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

func goRedisPops(t *testing.T, url string) {
	c := goRedis(t, url)
	popped := make(chan []string, 1)
	go func() { popped <- c.BLPop(t.Context(), 0, "queue").Val() }()
	select {
	case v := <-popped:
		t.Fatalf("did not wait: %v", v)
	case <-time.After(100 * time.Millisecond):
	}
	c.RPush(t.Context(), "queue", "job")
	select {
	case v := <-popped:
		equal(t, v, []string{"queue", "job"})
	case <-time.After(limit):
		t.Fatal("BLPOP still waits")
	}
	if err := c.BLPop(t.Context(), time.Second, "queue").Err(); !errors.Is(err, redis.Nil) {
		t.Errorf("BLPOP of an empty list: %v", err)
	}
}

func goRedisScripts(t *testing.T, url string) {
	c := goRedis(t, url)
	double := redis.NewScript("return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)")
	equal(t, double.Run(t.Context(), c, []string{"s"}, 4).Val(), any(int64(8)))
	equal(t, c.ScriptFlush(t.Context()).Val(), "OK")
	if err := double.EvalSha(t.Context(), c, []string{"s"}, 1).Err(); !redis.HasErrorPrefix(err, "NOSCRIPT") {
		t.Errorf("EVALSHA after SCRIPT FLUSH: %v", err)
	}
	equal(t, double.Run(t.Context(), c, []string{"s"}, 1).Val(), any(int64(10)))
}
