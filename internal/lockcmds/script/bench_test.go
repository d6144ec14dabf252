package script_test

import (
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/locktest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Owners as in the conformance vectors of Redisson's layout.
const (
	ownerA = "aaaaaaaa-0000-4000-8000-000000000001:11"
	ownerB = "bbbbbbbb-0000-4000-8000-000000000002:22"
	ownerC = "cccccccc-0000-4000-8000-000000000003:33"
	ownerD = "dddddddd-0000-4000-8000-000000000004:44"
)

// bench is one Redis, real or embedded, with the names of one lock.
type bench struct {
	t *testing.T
	c *redis.Client
	s map[string]*script.Script
	n locktest.Names

	request int64 // of the latest call
	mine    map[string]belief
	turn    *turn // nil: a turn passes with the time
}

// turn is for whom a script has a free lock kept, and for how long. It is set anew for the next script: a machine may
// stand still for longer.
type turn struct {
	of   string // empty: the lock is not kept
	left time.Duration
}

// belief is what an owner's only session knows of its hold.
type belief struct{ fence, holds int64 }

// scripts are all scripts by name.
func scripts() map[string]*script.Script {
	all := map[string]*script.Script{}
	for _, s := range script.All() {
		all[s.Name()] = s
	}
	return all
}

// onBoth runs a test against a real redis-server and against miniredis, which serves the embedded mode.
func onBoth(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	t.Run("redis", func(t *testing.T) {
		srv := redistest.Start(t)
		f(t, &bench{t: t, c: srv.Client(t), s: scripts(), n: locktest.NamesOf("foo")})
	})
	t.Run("miniredis", func(t *testing.T) {
		srv := miniredis.RunT(t)
		c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: 2, MaintNotificationsConfig: nil})
		t.Cleanup(func() { _ = c.Close() })
		f(t, &bench{t: t, c: c, s: scripts(), n: locktest.NamesOf("foo")})
	})
}

func (b *bench) eval(s *script.Script, keys []string, args ...any) ([]int64, error) {
	b.t.Helper()
	v, err := b.play(s, keys, args).Result()
	if err != nil {
		return nil, err
	}
	if fence, ok := v.(int64); ok {
		return []int64{1, fence, 1}, nil
	}
	list, ok := v.([]any)
	if !ok {
		b.t.Fatalf("%s returned %T, want an array or an integer", s.Name(), v)
	}
	out := make([]int64, len(list))
	for i, e := range list {
		n, ok := e.(int64)
		if !ok {
			b.t.Fatalf("%s returned %T at %d, want an integer", s.Name(), e, i)
		}
		out[i] = n
	}
	return out, nil
}

// play runs a script. For Redis no time passes within a transaction.
func (b *bench) play(s *script.Script, keys []string, args []any) (answer *redis.Cmd) {
	ctx := b.t.Context()
	if b.turn == nil {
		return b.c.Eval(ctx, s.Text(), keys, args...)
	}
	var of *redis.StringCmd
	var left *redis.DurationCmd
	_, _ = b.c.TxPipelined(ctx, func(p redis.Pipeliner) error {
		p.Del(ctx, b.n.Channel)
		if b.turn.of != "" {
			p.Set(ctx, b.n.Channel, b.turn.of, b.turn.left)
		}
		answer, of, left = p.Eval(ctx, s.Text(), keys, args...), p.Get(ctx, b.n.Channel), p.PTTL(ctx, b.n.Channel)
		return nil
	})
	b.turn = &turn{of.Val(), left.Val()}
	return answer
}

func (b *bench) must(s *script.Script, keys []string, args ...any) []int64 {
	b.t.Helper()
	out, err := b.eval(s, keys, args...)
	if err != nil {
		b.t.Fatalf("%s: %v", s.Name(), err)
	}
	return out
}

func (b *bench) acquire(owner string, lease int64) []int64 {
	b.t.Helper()
	if out := b.again(owner, lease); out != nil {
		return out
	}
	return b.grants(owner, b.must(b.s["acquire"], []string{b.n.Lock, b.n.Fence, b.n.Channel, b.n.Queue}, owner, lease, "PUBLISH"))
}

func (b *bench) fair(owner string, lease, wait int64, enqueue int) []int64 {
	b.t.Helper()
	if out := b.again(owner, lease); out != nil {
		return out
	}
	return b.grants(owner, b.must(b.s["attempt"], []string{b.n.Lock, b.n.Queue, b.n.Channel, b.n.Fence, b.n.Deadlines},
		owner, lease, "PUBLISH", "", "", "", b.n.PlaceOf(owner), "fair", 0, enqueue, wait))
}

func (b *bench) release(owner string, lease, fence int64) []int64 {
	b.t.Helper()
	out := b.must(b.s["release"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, fence, "PUBLISH", b.releases(owner), lease, "")
	b.released(owner, out)
	return out
}

func (b *bench) next() int64 {
	b.request++
	return b.request
}

// again deepens the hold that the owner knows; nil: it has none, or has it no more.
func (b *bench) again(owner string, lease int64) []int64 {
	mine, ok := b.mine[owner]
	if !ok {
		return nil
	}
	out := b.must(b.s["deepen"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, mine.fence, "PUBLISH", mine.holds+1, lease)
	if out[0] != 1 {
		delete(b.mine, owner)
		return nil
	}
	return b.grants(owner, out)
}

// grants notes the answer to an acquire, and returns its first three numbers, or four if the counter was replaced.
func (b *bench) grants(owner string, out []int64) []int64 {
	if out[0] != 1 {
		return out
	}
	if b.mine == nil {
		b.mine = map[string]belief{}
	}
	b.mine[owner] = belief{out[1], out[2]}
	if len(out) > 3 && out[3] == 0 {
		return out[:3]
	}
	return out[:min(len(out), 4)]
}

// releases is how many holds a session has after it has released one.
func (b *bench) releases(owner string) int64 { return max(b.mine[owner].holds-1, 0) }

func (b *bench) released(owner string, out []int64) {
	switch {
	case out[0] > 0:
		delete(b.mine, owner)
	case out[0] == 0:
		b.mine[owner] = belief{b.mine[owner].fence, out[1]}
	}
}

func (b *bench) leave(owners ...string) []int64 {
	b.t.Helper()
	args := []any{"PUBLISH"}
	for _, owner := range owners {
		args = append(args, b.n.PlaceOf(owner))
	}
	return b.must(b.s["leave"], []string{b.n.Queue, b.n.Deadlines, b.n.Lock, b.n.Channel}, args...)
}

func (b *bench) hash() map[string]string {
	b.t.Helper()
	m, err := b.c.HGetAll(b.t.Context(), b.n.Lock).Result()
	if err != nil {
		b.t.Fatal(err)
	}
	return m
}

func (b *bench) pttl() time.Duration {
	b.t.Helper()
	return b.c.PTTL(b.t.Context(), b.n.Lock).Val()
}

func (b *bench) queue() []string {
	b.t.Helper()
	return b.c.LRange(b.t.Context(), b.n.Queue, 0, -1).Val()
}

func (b *bench) score(owner string) int64 {
	b.t.Helper()
	v, err := b.c.ZScore(b.t.Context(), b.n.Deadlines, owner).Result()
	if err != nil {
		b.t.Fatalf("score of %s: %v", owner, err)
	}
	return int64(v)
}

// listen returns a function that yields what was published on the channels since, in order, up to a marker.
func (b *bench) listen(channels ...string) func() []string {
	b.t.Helper()
	const marker = "marker"
	sub := b.c.Subscribe(b.t.Context(), append(channels, marker)...)
	b.t.Cleanup(func() { _ = sub.Close() })
	for range len(channels) + 1 {
		if _, err := sub.Receive(b.t.Context()); err != nil {
			b.t.Fatal(err)
		}
	}
	return func() []string {
		b.t.Helper()
		b.c.Publish(b.t.Context(), marker, "x")
		var got []string
		for {
			m, err := sub.ReceiveMessage(b.t.Context())
			if err != nil {
				b.t.Fatal(err)
			}
			if m.Channel == marker {
				return got
			}
			got = append(got, m.Channel+" "+m.Payload)
		}
	}
}

// within reports whether a TTL is a lease that was set a moment ago.
func within(d time.Duration, lease int64) bool {
	full := time.Duration(lease) * time.Millisecond
	return d <= full && d > full-5*time.Second
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Fatalf("%s (-want +got):\n%s", what, diff)
	}
}
