//go:build interop

package interop

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestRueidis(t *testing.T) {
	upstreams(t, library{open: openRueidis, own: map[string]func(t *testing.T, url string){
		"connect":      rueidisConnects,
		"pipeline":     rueidisPipelines,
		"transaction":  rueidisTransacts,
		"watch":        rueidisWatches,
		"pubsub":       rueidisSubscribes,
		"blocking-pop": rueidisPops,
		"script":       rueidisScripts,
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

func rueidisConnects(t *testing.T, url string) {
	c := rueidisClient(t, url)
	ctx := t.Context()
	pong, err := c.Do(ctx, c.B().Ping().Build()).ToString()
	if err != nil || pong != "PONG" {
		t.Fatalf("PING: %q %v", pong, err)
	}
	for key, value := range map[string]string{"bytes": everyByte(), "big": strings.Repeat("0123456789abcdef", 65536)} {
		if err := c.Do(ctx, c.B().Set().Key(key).Value(value).Build()).Error(); err != nil {
			t.Fatal(err)
		}
		got, err := c.Do(ctx, c.B().Get().Key(key).Build()).ToString()
		if err != nil || got != value {
			t.Errorf("GET %s: %d bytes, %v", key, len(got), err)
		}
	}
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

func rueidisPipelines(t *testing.T, url string) {
	c := rueidisClient(t, url)
	var commands rueidis.Commands
	for i := range 1000 {
		key := "p:" + strconv.Itoa(i)
		commands = append(commands, c.B().Set().Key(key).Value(strconv.Itoa(i)).Build(), c.B().Get().Key(key).Build())
	}
	commands = append(commands, c.B().Lpush().Key("p:499").Element("x").Build())
	results := c.DoMulti(t.Context(), commands...)
	for i := range 1000 {
		v, err := results[2*i+1].AsInt64()
		if err != nil || v != int64(i) {
			t.Fatalf("reply %d: %d %v", i, v, err)
		}
	}
	if err := results[2000].Error(); err == nil || !strings.HasPrefix(err.Error(), "WRONGTYPE") {
		t.Errorf("LPUSH to a string: %v", err)
	}
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

func rueidisPops(t *testing.T, url string) {
	c := rueidisClient(t, url)
	ctx := t.Context()
	popped := make(chan []string, 1)
	go func() {
		v, _ := c.Do(ctx, c.B().Blpop().Key("queue").Timeout(0).Build()).AsStrSlice() // nil upon an error
		popped <- v
	}()
	select {
	case v := <-popped:
		t.Fatalf("did not wait: %v", v)
	case <-time.After(100 * time.Millisecond):
	}
	if err := c.Do(ctx, c.B().Rpush().Key("queue").Element("job").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	equal(t, receive(t, popped), []string{"queue", "job"})
	if err := c.Do(ctx, c.B().Blpop().Key("queue").Timeout(0.1).Build()).Error(); !rueidis.IsRedisNil(err) {
		t.Errorf("BLPOP of an empty list: %v", err)
	}
}

func rueidisScripts(t *testing.T, url string) {
	c := rueidisClient(t, url)
	ctx := t.Context()
	double := rueidis.NewLuaScript("return redis.call('INCRBY', KEYS[1], ARGV[1] * 2)")
	run := func(want int64) {
		t.Helper()
		n, err := double.Exec(ctx, c, []string{"s"}, []string{"4"}).AsInt64()
		if n != want || err != nil {
			t.Fatalf("got %d %v, want %d", n, err, want)
		}
	}
	run(8)
	sha, err := c.Do(ctx, c.B().ScriptLoad().Script("return 1").Build()).ToString()
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Do(ctx, c.B().ScriptFlush().Build()).Error(); err != nil {
		t.Fatal(err)
	}
	err = c.Do(ctx, c.B().Evalsha().Sha1(sha).Numkeys(0).Build()).Error()
	if reply := new(rueidis.RedisError); !errors.As(err, &reply) || !reply.IsNoScript() {
		t.Errorf("EVALSHA after SCRIPT FLUSH: %v", err)
	}
	run(16)
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
