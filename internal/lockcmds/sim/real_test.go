package sim

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
)

// The model is held against a real Redis in two ways: random commands on both, and all scripts of random histories on
// both.

func TestModelKnowsTheCommandsOfRedis(t *testing.T) {
	srv := redistest.Start(t)
	real := srv.Client(t)
	ctx := t.Context()
	rapid.Check(t, func(t *rapid.T) {
		if err := real.FlushAll(ctx).Err(); err != nil {
			t.Fatal(err)
		}
		model := newRedis(func() int64 { return time.Now().UnixMicro() }, func(string, string) int64 { return 0 })
		key := rapid.SampledFrom([]string{"k", "l"})
		word := rapid.SampledFrom([]string{"x", "y", "z", "1", "-3"})
		number := rapid.SampledFrom([]string{"0", "1", "2", "5", "-1", "-2", "9007199254740991"})
		for range rapid.IntRange(1, 40).Draw(t, "commands") {
			k := key.Draw(t, "key")
			a, b := word.Draw(t, "a"), word.Draw(t, "b")
			n, m := number.Draw(t, "n"), number.Draw(t, "m")
			args := rapid.SampledFrom([][]string{
				{"EXISTS", k},
				{"DEL", k},
				{"PTTL", k},
				{"PEXPIRE", k, "60000"},
				{"PEXPIRE", k, "0"},
				{"PEXPIRE", k, "-1"},
				{"GET", k},
				{"SET", k, a},
				{"SET", k, a, "GET"},
				{"SET", k, a, "PX", "60000"},
				{"SET", k, a, "KEEPTTL"},
				{"HSET", k, a, b},
				{"HSET", k, a, n, b, m},
				{"HSCAN", k, "0", "COUNT", "2"},
				{"HGET", k, a},
				{"HMGET", k, a, b},
				{"HGETALL", k},
				{"HKEYS", k},
				{"HDEL", k, a},
				{"HDEL", k, a, b},
				{"HEXISTS", k, a},
				{"HLEN", k},
				{"RPUSH", k, a},
				{"RPUSH", k, a, b},
				{"LPUSH", k, a},
				{"LLEN", k},
				{"LINDEX", k, n},
				{"LRANGE", k, n, m},
				{"LREM", k, "0", a},
				{"LREM", k, "1", a},
				{"ZADD", k, n, a},
				{"ZADD", k, "XX", n, a},
				{"ZADD", k, "NX", n, a},
				{"ZADD", k, "XX", "LT", n, a},
				{"ZADD", k, n, a, m, b},
				{"ZREM", k, a},
				{"ZREM", k, a, b},
				{"ZSCORE", k, a},
				{"ZCARD", k},
				{"ZRANGE", k, "0", "-1"},
				{"ZRANGE", k, n, m},
				{"ZRANGE", k, n, m, "WITHSCORES"},
				{"ZCOUNT", k, "(" + n, "+inf"},
				{"ZRANGEBYSCORE", k, "-inf", n, "LIMIT", "0", "2"},
			}).Draw(t, "command")
			want := realReply(real, args)
			logged := map[*entry]*entry{} // what a replica has does not change
			for _, e := range model.keys {
				logged[e.share()] = e.clone()
			}
			got := modelReply(model.do(args[0], args[1:]))
			if want != got {
				t.Fatalf("%q: redis %s, the model %s", args, want, got)
			}
			for e, was := range logged {
				was.shared = true
				if !reflect.DeepEqual(e, was) {
					t.Fatalf("%q: changes a shared entry from %v to %v", args, was, e)
				}
			}
		}
	})
}

func realReply(c *goredis.Client, args []string) string {
	all := make([]any, len(args))
	for i, a := range args {
		all[i] = a
	}
	v, err := c.Do(context.Background(), all...).Result()
	if errors.Is(err, goredis.Nil) {
		return "nil"
	}
	if err != nil {
		return "error " + strings.Fields(err.Error())[0]
	}
	return showReply(v)
}

func modelReply(r reply) string {
	if r.kind == failure {
		return "error " + strings.Fields(r.text)[0]
	}
	return showReply(r.plain())
}

// plain is a reply as the client library for Redis gives it.
func (r reply) plain() any {
	switch r.kind {
	case integer:
		return r.n
	case bulk, status:
		return r.text
	case array:
		list := make([]any, len(r.list))
		for i, e := range r.list {
			list[i] = e.plain()
		}
		return list
	default:
		return nil
	}
}

// showReply prints a reply. Times to live are the only numbers near a minute.
func showReply(v any) string {
	switch v := v.(type) {
	case nil:
		return "nil"
	case int64:
		if v > 50_000 && v <= 60_000 {
			return "a minute"
		}
		return strconv.FormatInt(v, 10)
	case []any:
		parts := make([]string, len(v))
		for i, e := range v {
			parts[i] = showReply(e)
		}
		return "[" + strings.Join(parts, " ") + "]"
	case map[any]any: // of HGETALL in RESP3: without an order
		var parts []string
		for k, e := range v {
			parts = append(parts, showReply(k)+" "+showReply(e))
		}
		slices.Sort(parts)
		return "[" + strings.Join(parts, " ") + "]"
	}
	return fmt.Sprint(v)
}

// call is one script call of a history.
type call struct {
	script     redislink.Script
	keys, args []string
	answer     resp.Value // in the history
}

// The scripts of histories run on a model and on a real Redis, call by call, at the same time.
func TestModelRunsTheScriptsAsRedis(t *testing.T) {
	srv := redistest.Start(t)
	listeners := srv.Client(t).PSubscribe(t.Context(), "redisson_lock__channel:*")
	defer listeners.Close()
	if _, err := listeners.ReceiveTimeout(t.Context(), time.Minute); err != nil {
		t.Fatal(err)
	}
	real := srv.Client(t)
	ran := map[string]int{}
	for seed := range min(100, uint64(fixed)/3) {
		p := newPlan(seed + 1)
		if p.shape != single { // its calls go to several servers
			continue
		}
		w := p.play(true)
		if err := real.FlushAll(t.Context()).Err(); err != nil {
			t.Fatal(err)
		}
		model := newRedis(func() int64 { return time.Now().UnixMicro() }, func(channel, _ string) int64 {
			if strings.HasPrefix(channel, "redisson_lock__channel:") {
				return 1
			}
			return 0
		})
		both := &twins{model: map[string]string{}, real: map[string]string{}}
		for _, c := range w.calls[:min(len(w.calls), 150)] {
			got := scripts.run(model, c.script, c.keys, both.translate(both.model, c.args))
			args := make([]any, 0, len(c.args))
			for _, a := range both.translate(both.real, c.args) {
				args = append(args, a)
			}
			v, err := real.EvalSha(t.Context(), c.script.SHA(), c.keys, args...).Result()
			if err != nil && strings.HasPrefix(err.Error(), "NOSCRIPT") {
				v, err = real.Eval(t.Context(), c.script.Text(), c.keys, args...).Result()
			}
			want := v
			if err != nil && !errors.Is(err, goredis.Nil) {
				want = err
			}
			if g, w := both.show(got), both.show(want); g != w {
				t.Fatalf("seed %d: %s %q %q: redis %s, the model %s", seed+1, c.script.(interface{ Name() string }).Name(), c.keys, c.args, w, g)
			}
			// The history's own fences stand for those of the two servers.
			both.learn(c, got, want)
			ran[c.script.(interface{ Name() string }).Name()]++
		}
		for _, key := range keys {
			for _, q := range [][]string{{"HGETALL", key}, {"LRANGE", "redisson_lock_queue:{" + key + "}", "0", "-1"}} {
				if g, w := both.blur(modelReply(model.do(q[0], q[1:]))), both.blur(realReply(real, q)); len(g) != len(w) {
					t.Fatalf("seed %d: %q: redis %s, the model %s", seed+1, q, w, g)
				}
			}
		}
	}
	t.Logf("calls: %v", ran)
	for _, name := range []string{"acquire", "attempt", "release", "handover", "renew", "leave", "extend", "deepen"} {
		if ran[name] == 0 {
			t.Errorf("%s was not run", name)
		}
	}
}

// twins translates the fences of a history into those of the model and of Redis.
type twins struct{ model, real map[string]string }

func (*twins) translate(to map[string]string, args []string) []string {
	out := slices.Clone(args)
	for i, a := range args {
		if f, ok := to[a]; ok {
			out[i] = f
		}
	}
	return out
}

const leastFence = 1e15

// learn takes fences of the history in the order in which they appear. A call was recorded with its answer.
func (b *twins) learn(c call, model resp.Value, real any) {
	old, m, r := fencesOf(show(c.answer)), fencesOf(show(model)), fencesOf(fmt.Sprint(real))
	for i := range min(len(old), len(m), len(r)) {
		b.model[old[i]], b.real[old[i]] = m[i], r[i]
	}
}

func fencesOf(text string) (list []string) {
	for _, f := range strings.FieldsFunc(text, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.ParseFloat(f, 64); err == nil && n > leastFence {
			list = append(list, f)
		}
	}
	return list
}

// show prints an answer: fences by where they appear, lengths of time without their last digits.
func (b *twins) show(v any) string {
	var text string
	switch v := v.(type) {
	case resp.Value:
		text = strings.ReplaceAll(strings.TrimPrefix(strings.ReplaceAll(show(v), " :", " "), ":"), "[:", "[")
		if text == "(nil)" {
			text = "<nil>"
		}
		if v.IsError() {
			text = strings.Fields(text[1:])[0]
		}
	case error:
		text = strings.Fields(v.Error())[0]
	default:
		text = fmt.Sprint(v)
	}
	return b.blur(text)
}

func (*twins) blur(text string) string {
	var out strings.Builder
	for f := range strings.FieldsSeq(text) {
		digits := strings.Trim(f, "[]-")
		n, err := strconv.ParseInt(digits, 10, 64)
		switch {
		case err == nil && n > leastFence:
			f = strings.Replace(f, digits, "fence", 1)
		case err == nil && n > 20:
			f = strings.Replace(f, digits, "time", 1)
		}
		out.WriteString(f + " ")
	}
	return out.String()
}
