//go:build interop

package interop

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestRueidis(t *testing.T) {
	upstreams(t, library{open: openRueidis, own: map[string]func(t *testing.T, url string){
		"connect":     rueidisCaches,
		"transaction": rueidisTransacts,
		"watch":       rueidisWatches,
		"pubsub":      rueidisSubscribes,
	}}.claim)
}

// rueidisSession is a dedicated connection: the others are shared by all callers.
type rueidisSession struct {
	conn rueidis.DedicatedClient
}

func openRueidis(t *testing.T, url string) session {
	t.Helper()
	client := rueidisClient(t, url)
	conn, _ := client.Dedicate()
	t.Cleanup(conn.Close) // the client's Close leaves dedicated connections open
	return rueidisSession{conn}
}

func rueidisClient(t *testing.T, url string) rueidis.Client {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.MustParseURL(url))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

func (s rueidisSession) build(words []string) rueidis.Completed {
	return s.conn.B().Arbitrary(words[0]).Args(words[1:]...).Build()
}

func (s rueidisSession) command(ctx context.Context, words ...string) (any, error) {
	return rueidisReply(s.conn.Do(ctx, s.build(words)))
}

func (s rueidisSession) pipeline(ctx context.Context, commands [][]string) []any {
	var built []rueidis.Completed
	for _, words := range commands {
		built = append(built, s.build(words))
	}
	var outcomes []any
	for _, result := range s.conn.DoMulti(ctx, built...) {
		outcomes = append(outcomes, outcome(rueidisReply(result)))
	}
	return outcomes
}

func rueidisReply(result rueidis.RedisResult) (any, error) {
	v, err := result.ToAny()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	if list, ok := v.([]any); ok {
		v = texts(list)
	}
	return v, err
}

// texts replaces the errors within a list by their texts.
func texts(list []any) []any {
	for i, v := range list {
		switch v := v.(type) {
		case error:
			list[i] = "error " + v.Error()
		case []any:
			list[i] = texts(v)
		}
	}
	return list
}

func (s rueidisSession) close() { s.conn.Close() }

func rueidisCaches(t *testing.T, url string) {
	c := rueidisClient(t, url)
	ctx := t.Context()
	// Client-side caching is on by default: the second read is answered from memory until the key changes.
	cached := func() rueidis.RedisResult {
		return c.DoCache(ctx, c.B().Get().Key("cached").Cache(), time.Minute)
	}
	set := func(v string) {
		t.Helper()
		if err := c.Do(ctx, c.B().Set().Key("cached").Value(v).Build()).Error(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	first, second := cached(), cached()
	if v, err := second.ToString(); v != "1" || err != nil || first.IsCacheHit() || !second.IsCacheHit() {
		t.Errorf("cached: %q %v, hits %v %v", v, err, first.IsCacheHit(), second.IsCacheHit())
	}
	set("2")
	redistest.Eventually(t, limit, "the invalidation of the cached value", func() bool {
		v, err := cached().ToString()
		return err == nil && v == "2"
	})
}

func rueidisTransacts(t *testing.T, url string) {
	c := rueidisClient(t, url)
	err := c.Dedicated(func(d rueidis.DedicatedClient) error {
		results := d.DoMulti(t.Context(),
			d.B().Set().Key("t").Value("1").Build(), d.B().Watch().Key("t").Build(), d.B().Multi().Build(),
			d.B().Incr().Key("t").Build(), d.B().Incr().Key("t").Build(), d.B().Exec().Build())
		replies, err := results[len(results)-1].AsIntSlice()
		equal(t, replies, []int64{2, 3})
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

func rueidisWatches(t *testing.T, url string) {
	c := rueidisClient(t, url)
	ctx := t.Context()
	_ = c.Dedicated(func(d rueidis.DedicatedClient) error {
		if err := d.Do(ctx, d.B().Watch().Key("w").Build()).Error(); err != nil {
			t.Error(err)
		}
		if err := c.Do(ctx, c.B().Set().Key("w").Value("2").Build()).Error(); err != nil {
			t.Error(err)
		}
		results := d.DoMulti(ctx, d.B().Multi().Build(), d.B().Set().Key("w").Value("3").Build(), d.B().Exec().Build())
		if err := results[2].Error(); !rueidis.IsRedisNil(err) {
			t.Errorf("EXEC after somebody else's write: %v", err)
		}
		return nil
	})
	v, err := c.Do(ctx, c.B().Get().Key("w").Build()).ToString()
	if v != "2" || err != nil {
		t.Errorf("GET w: %q %v", v, err)
	}
}

func rueidisSubscribes(t *testing.T, url string) {
	c := rueidisClient(t, url)
	d, free := c.Dedicate()
	defer free()
	ctx := t.Context()
	type message struct{ Pattern, Text string }
	got := make(chan message, 1000)
	counts := make(chan int64, 10) // of subscriptions
	d.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage:      func(m rueidis.PubSubMessage) { got <- message{m.Pattern, m.Message} },
		OnSubscription: func(s rueidis.PubSubSubscription) { counts <- s.Count },
	})
	do := func(command rueidis.Completed, count int64) {
		t.Helper()
		if err := d.Do(ctx, command).Error(); err != nil {
			t.Fatal(err)
		}
		equal(t, receive(t, counts), count)
	}
	publish := func(text string) int64 {
		n, err := c.Do(ctx, c.B().Publish().Channel("news").Message(text).Build()).AsInt64()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	do(d.B().Subscribe().Channel("news").Build(), 1)
	do(d.B().Psubscribe().Pattern("n*s").Build(), 2)
	for i := range 100 {
		equal(t, publish(strconv.Itoa(i)), int64(2))
	}
	for i := range 100 {
		equal(t, receive(t, got), message{"", strconv.Itoa(i)})
		equal(t, receive(t, got), message{"n*s", strconv.Itoa(i)})
	}
	do(d.B().Unsubscribe().Channel("news").Build(), 1)
	do(d.B().Punsubscribe().Pattern("n*s").Build(), 0)
	equal(t, publish("x"), int64(0))
}

func receive[T any](t *testing.T, from <-chan T) T {
	t.Helper()
	select {
	case v := <-from:
		return v
	case <-time.After(limit):
		t.Fatal("waited in vain")
		panic("BUG: Fatal returned")
	}
}
