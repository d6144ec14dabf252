package lockcmds

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"
	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
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
	n script.Names

	request int64 // of the latest call
	mine    map[string]belief
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
		f(t, &bench{t: t, c: srv.Client(t), s: scripts(), n: script.NamesOf("foo")})
	})
	t.Run("miniredis", func(t *testing.T) {
		srv := miniredis.RunT(t)
		c := redis.NewClient(&redis.Options{Addr: srv.Addr(), Protocol: 2, MaintNotificationsConfig: nil})
		t.Cleanup(func() { _ = c.Close() })
		f(t, &bench{t: t, c: c, s: scripts(), n: script.NamesOf("foo")})
	})
}

func (b *bench) eval(s *script.Script, keys []string, args ...any) ([]int64, error) {
	b.t.Helper()
	v, err := b.c.Eval(b.t.Context(), s.Text(), keys, args...).Result()
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
	return b.grants(owner, b.must(b.s["acquire"], []string{b.n.Lock, b.n.Fence, b.n.Channel}, b.asks(owner, lease)...))
}

func (b *bench) fair(owner string, lease, wait int64, enqueue int) []int64 {
	b.t.Helper()
	return b.grants(owner, b.must(b.s["fair"], []string{b.n.Lock, b.n.Queue, b.n.Deadlines, b.n.Fence, b.n.Channel},
		append(b.asks(owner, lease), "", wait, enqueue, "PUBLISH", b.n.PlaceOf(owner), 0)...))
}

func (b *bench) release(owner string, lease, fence int64) []int64 {
	b.t.Helper()
	out := b.must(b.s["release"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, fence, b.next(), "PUBLISH", b.releases(owner), lease)
	b.released(owner, out)
	return out
}

func (b *bench) next() int64 {
	b.request++
	return b.request
}

// asks are the first arguments of an acquire, but for the field.
func (b *bench) asks(owner string, lease int64) []any {
	return []any{owner, lease, b.next(), b.mine[owner].fence, b.mine[owner].holds + 1}
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

func TestAcquireAndReleaseFollowTheContract(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel)
		first := b.acquire(ownerA, 30000)
		equal(t, "status and holds", []int64{first[0], first[2]}, []int64{1, 1})
		if now := time.Now().UnixMicro(); first[1] > now || first[1] < now-5_000_000 {
			t.Fatalf("fence %d is not Redis's time in microseconds", first[1])
		}
		if !within(b.pttl(), 30000) {
			t.Fatalf("ttl %v", b.pttl())
		}
		equal(t, "re-entry keeps the fence", b.acquire(ownerA, 20000), []int64{1, first[1], 2})
		if !within(b.pttl(), 20000) {
			t.Fatalf("re-entry left ttl %v", b.pttl())
		}
		equal(t, "holds", b.hash()[ownerA], "2")
		busy := b.acquire(ownerB, 30000)
		if busy[0] != 0 || busy[1] <= 0 || busy[1] > 20000 {
			t.Fatalf("other owner: %v", busy)
		}
		equal(t, "release by a stranger", b.release(ownerB, 30000, 0), []int64{-1})
		equal(t, "release of another grant", b.release(ownerA, 30000, first[1]+1), []int64{-2, first[1]})
		equal(t, "partial release", b.release(ownerA, 30000, first[1]), []int64{0, 1, first[1]})
		if !within(b.pttl(), 30000) {
			t.Fatalf("partial release left ttl %v", b.pttl())
		}
		equal(t, "messages so far", heard(), []string(nil))
		equal(t, "last release", b.release(ownerA, 30000, first[1]), []int64{1, first[1], 1})
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0"})
		equal(t, "replayed release", b.release(ownerA, 30000, first[1]), []int64{-1})
		equal(t, "hash", b.hash(), map[string]string{})
		if next := b.acquire(ownerB, 30000); next[1] <= first[1] {
			t.Fatalf("fence %d after %d", next[1], first[1])
		}
	})
}

func TestPartialReleaseMayKeepTheTTL(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 9000)
		b.acquire(ownerA, 9000)
		b.release(ownerA, 0, 0)
		if !within(b.pttl(), 9000) {
			t.Fatalf("ttl %v", b.pttl())
		}
	})
}

func TestHeldWithoutTTLIsBusy(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.HSet(t.Context(), b.n.Lock, ownerB, 1)
		equal(t, "acquire", b.acquire(ownerA, 30000), []int64{0, -1})
	})
}

func TestHoldOfRedissonGetsAFence(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.HSet(t.Context(), b.n.Lock, ownerA, 1)
		b.c.PExpire(t.Context(), b.n.Lock, time.Minute)
		equal(t, "release by fence", b.release(ownerA, 0, 7), []int64{-2, 0})
		keys := []string{b.n.Lock, b.n.Fence, b.n.Channel}
		got := b.must(b.s["acquire"], keys, ownerA, 30000, 1, 0, 1, "{s}", "PUBLISH", "x")
		if got[0] != 1 || got[1] == 0 || got[2] != 2 {
			t.Fatalf("re-entry: %v", got)
		}
		again := b.must(b.s["acquire"], keys, ownerA, 30000, 2, got[1], 2, "{s}", "PUBLISH", "x")
		equal(t, "again", again, []int64{1, got[1], 3, 0, 0, 2})
	})
}

func TestFenceGrowsWhenTheClockDoesNot(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const ahead = 4_000_000_000_000_000 // in the year 2096
		b.c.Set(t.Context(), b.n.Fence, ahead, 0)
		equal(t, "acquire", b.acquire(ownerA, 30000), []int64{1, ahead + 1, 1})
		b.release(ownerA, 0, 0)
		equal(t, "fair", b.fair(ownerB, 30000, 300000, 1), []int64{1, ahead + 2, 1})
		equal(t, "hand-over", b.handover(ownerB, ownerC), []int64{2, ahead + 3, ahead + 2, 0, 1, 0})
		equal(t, "counter", b.c.Get(t.Context(), b.n.Fence).Val(), "4000000000000003")
	})
}

func TestCounterThatHoldsNoFenceIsSetToTheTime(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		last := int64(0)
		grown := func(what string, got []int64, at int) {
			t.Helper()
			if len(got) < 4 || got[3] != int64(script.CounterReplaced) || got[at] <= last || got[at] > 1<<53 {
				t.Errorf("%s: %v after %d", what, got, last)
			}
			last = got[at]
		}
		for _, poison := range []string{"1e300", "inf", "nan", "text", "-5", "1.5", "9007199254740992", "9223372036854775807"} {
			poisoned := func() { b.c.Set(t.Context(), b.n.Fence, poison, 0) }
			poisoned()
			grown(poison, b.acquire(ownerA, 30000), 1)
			poisoned()
			grown(poison+" hand-over", b.handover(ownerA, ownerC), 1)
			b.release(ownerC, 0, 0)
			poisoned()
			grown(poison+" fair", b.fair(ownerB, 30000, 300000, 1), 1)
			b.release(ownerB, 0, 0)
		}
		b.c.Del(t.Context(), b.n.Fence)
		b.c.HSet(t.Context(), b.n.Fence, "a", "b")
		grown("hash", b.acquire(ownerA, 30000), 1)
		b.c.HDel(t.Context(), b.n.Lock, "fence", "{request}")
		b.c.Del(t.Context(), b.n.Fence)
		b.c.RPush(t.Context(), b.n.Fence, "a")
		grown("list, at a re-entry", b.acquire(ownerA, 30000), 1)
	})
}

func TestQueueOfAnotherTypeDoesNotStopARelease(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		fence := b.acquire(ownerA, 30000)[1]
		b.c.Set(t.Context(), b.n.Queue, "x", 0)
		equal(t, "release", b.release(ownerA, 0, 0), []int64{1, fence, 1, int64(script.NoQueue)})
		fence = b.acquire(ownerA, 30000)[1]
		got := b.handover(ownerA, ownerC)
		equal(t, "hand-over", got, []int64{2, got[1], fence, int64(script.NoQueue), 1, int64(turns.None)})
	})
}

func TestFenceGrowsOverFlushAll(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		before := b.acquire(ownerA, 30000)[1]
		b.c.FlushAll(t.Context())
		if after := b.acquire(ownerA, 30000)[1]; after <= before {
			t.Fatalf("fence %d after %d", after, before)
		}
	})
}

func TestScriptsPassWrongTypeThrough(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.Set(t.Context(), b.n.Lock, "x", 0)
		n := b.n
		for _, call := range []struct {
			s    *script.Script
			keys []string
			args []any
		}{
			{b.s["acquire"], []string{n.Lock, n.Fence, n.Channel}, []any{ownerA, 1000, 1}},
			{b.s["fair"], []string{n.Lock, n.Queue, n.Deadlines, n.Fence, n.Channel}, []any{ownerA, 1000, 1, 0, 1, "", 1000, 1, "PUBLISH", ownerA, 0}},
			{b.s["release"], []string{n.Lock, n.Channel, n.Queue}, []any{ownerA, 0, 1, "PUBLISH", 0}},
			{b.s["handover"], []string{n.Lock, n.Channel, n.Queue, n.Fence}, []any{ownerA, 0, 1, "PUBLISH", 0, 1000, "", "", 1000, crowd, 0, ownerB, 1000, 1, "", ""}},
			{b.s["extend"], []string{n.Lock, n.Channel, n.Queue}, []any{ownerA, 1000, "PUBLISH", 1, ""}},
			{b.s["info"], []string{n.Lock, n.Queue}, nil},
			{b.s["force"], []string{n.Lock, n.Channel, n.Queue}, []any{"PUBLISH", 0}},
			{b.s["drop"], []string{n.Lock, n.Channel, n.Queue}, []any{ownerA, 0, 0, "PUBLISH", 1, 0, "", 0}},
		} {
			_, err := b.eval(call.s, call.keys, call.args...)
			const want = "WRONGTYPE Operation against a key holding the wrong kind of value"
			if err == nil || err.Error() != want {
				t.Errorf("%s: %v, want %s", call.s.Name(), err, want)
			}
		}
		equal(t, "renew", b.must(b.s["renew"], []string{n.Lock}, ownerA, 0, 1000), []int64{0})
		equal(t, "the string", b.c.Get(t.Context(), n.Lock).Val(), "x")
		if b.c.Exists(t.Context(), n.Queue, n.Deadlines).Val() != 0 {
			t.Error("a refused fair acquire left a queue behind")
		}
	})
}

const crowd = "eeeeeeee-0000-4000-8000-000000000005:plain-1"

func (b *bench) handover(owner, next string) []int64 {
	b.t.Helper()
	return b.handoverTo(owner, next, 40000, 0)
}

// handoverTo hands over for a lease, to a plain waiter that is the last of them, or to a fair one if fair is 1.
func (b *bench) handoverTo(owner, next string, lease int64, fair int) []int64 {
	b.t.Helper()
	who := []any{next, lease, "", crowd, 0}
	if fair == 1 {
		who = []any{"", "", "", crowd, 0, next, lease, "", b.n.PlaceOf(next)}
	}
	return b.handoverOf(owner, who...)
}

// handoverOf takes, for the plain waiter, its owner, lease and channel, the place of the plain waiters, whether it stays; for the fair one
// its owner, lease, channel and place.
func (b *bench) handoverOf(owner string, who ...any) []int64 {
	b.t.Helper()
	args := []any{owner, 0, b.next(), "PUBLISH", b.releases(owner), 30000, "", "", 300000, who[3], who[4], who[0], who[1], b.next(), "", who[2]}
	if len(who) > 5 {
		args = append(args, who[5], who[6], b.next(), "", who[7], who[8])
	}
	out := b.must(b.s["handover"], []string{b.n.Lock, b.n.Channel, b.n.Queue, b.n.Fence, b.n.Deadlines}, args...)
	b.released(owner, out)
	if out[0] == 2 {
		b.grants(fmt.Sprint(who[5*(out[4]-1)]), []int64{1, out[1], 1})
	}
	return out
}

func TestHandOverGrantsInOneStep(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerC))
		fence := b.acquire(ownerA, 30000)[1]
		b.acquire(ownerA, 30000)
		equal(t, "by a stranger", b.handover(ownerB, ownerC), []int64{-1})
		equal(t, "with holds left", b.handover(ownerA, ownerB), []int64{0, 1, fence})
		got := b.handover(ownerA, ownerB)
		if got[0] != 2 || got[1] <= fence || got[2] != fence {
			t.Fatalf("hand-over: %v after fence %d", got, fence)
		}
		equal(t, "owner", b.hash()[ownerB], "1")
		equal(t, "fields", len(b.hash()), 3)
		if !within(b.pttl(), 40000) {
			t.Fatalf("ttl %v", b.pttl())
		}
		equal(t, "messages", heard(), []string(nil))
		b.fair(ownerC, 30000, 300000, 1)
		equal(t, "with a fair waiter", b.handover(ownerB, ownerA), []int64{1, got[1], 1, 0, 0, 2})
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerC + " 0"})
		equal(t, "hash", b.hash(), map[string]string{})
	})
}

func TestHandOverToAFairWaiterIsItsTurn(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const wait = 300_000
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerB))
		b.acquire(ownerA, 30000)
		b.fair(ownerB, 30000, wait, 1)
		b.fair(ownerC, 30000, wait, 1)
		b.fair(ownerD, 30000, wait, 1)
		second, third := b.score(ownerC), b.score(ownerD)
		got := b.handoverTo(ownerA, ownerB, 40000, 1)
		if got[0] != 2 {
			t.Fatalf("to the head: %v", got)
		}
		equal(t, "owner", b.hash()[ownerB], "1")
		equal(t, "queue", b.queue(), []string{ownerC, ownerD})
		equal(t, "deadlines", []int64{b.score(ownerC), b.score(ownerD)}, []int64{second, third})
		equal(t, "messages", heard(), []string(nil))

		got = b.handoverTo(ownerB, ownerD, 40000, 1)
		equal(t, "to one who is not the head", got[0], int64(1))
		equal(t, "queue", b.queue(), []string{ownerC, ownerD})
		equal(t, "hash", b.hash(), map[string]string{})

		b.c.Del(t.Context(), b.n.Queue, b.n.Deadlines, b.n.Channel)
		b.acquire(ownerA, 30000)
		equal(t, "with nobody queued", b.handoverTo(ownerA, ownerB, 40000, 1)[0], int64(2))
	})
}

// Those who wait elsewhere have been told when the lease ends.
func TestHandOverForAShorterLeaseIsTold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerC))
		b.acquire(ownerA, 30000)
		b.handoverTo(ownerA, ownerB, 30000, 0)
		equal(t, "the same length", heard(), []string(nil))
		b.handoverTo(ownerB, ownerA, 5000, 0)
		equal(t, "shorter", heard(), []string{"redisson_lock__channel:{foo} 0"})
		b.fair(ownerB, 4000, 300000, 1)
		b.fair(ownerC, 30000, 300000, 1)
		b.handoverTo(ownerA, ownerB, 1000, 1)
		equal(t, "shorter, to a fair waiter", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerC + " 0"})
	})
}

func TestExtendNeedsTheHolder(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerB))
		extend := func(owner string, lease int) []int64 {
			return b.must(b.s["extend"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, lease, "PUBLISH", b.next(), "")
		}
		equal(t, "free", extend(ownerA, 90000), []int64{-1})
		fence := b.acquire(ownerA, 30000)[1]
		equal(t, "stranger", extend(ownerB, 90000), []int64{-1})
		equal(t, "holder", extend(ownerA, 90000), []int64{1, fence, 1})
		if !within(b.pttl(), 90000) {
			t.Fatalf("ttl %v", b.pttl())
		}
		b.fair(ownerB, 30000, 300000, 1)
		equal(t, "a longer lease wakes nobody", heard(), []string(nil))
		equal(t, "shorter", extend(ownerA, 20000), []int64{1, fence, 1})
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerB + " 0"})
	})
}

func TestRenewRenewsOnlyWhatIsOurs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		k := []string{"k1", "k2", "k3", "k4", "k5"}
		grant := func(key, owner string) int64 {
			return b.must(b.s["acquire"], []string{key, b.n.Fence, b.n.Channel}, owner, 10000, 1)[1]
		}
		f1 := grant("k1", ownerA)
		grant("k2", ownerB)
		f4 := grant("k4", ownerA)
		b.c.Set(t.Context(), "k5", "x", time.Minute)
		got := b.must(b.s["renew"], k, ownerA, f1, 30000, ownerA, 0, 30000, ownerA, 0, 30000, ownerA, f4+1, 30000, ownerA, 0, 1000)
		equal(t, "verdicts", got, []int64{1, 0, 0, 0, 0})
		for key, lease := range map[string]int64{"k1": 30000, "k2": 10000, "k4": 10000, "k5": 60000} {
			if ttl := b.c.PTTL(t.Context(), key).Val(); !within(ttl, lease) {
				t.Errorf("%s: ttl %v, want about %d ms", key, ttl, lease)
			}
		}
		equal(t, "any fence", b.must(b.s["renew"], k[3:4], ownerA, 0, 30000), []int64{1})
		equal(t, "longer than that", b.must(b.s["renew"], k[3:4], ownerA, 0, 20000), []int64{1})
		if ttl := b.c.PTTL(t.Context(), "k4").Val(); !within(ttl, 30000) {
			t.Errorf("a renewal has shortened a lease to %v", ttl)
		}
	})
}

func TestForceFreesAndWakes(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerB))
		keys := []string{b.n.Lock, b.n.Channel, b.n.Queue}
		force := func(fence ...int64) any {
			t.Helper()
			v, err := b.c.Eval(t.Context(), b.s["force"].Text(), keys, "PUBLISH", append(fence, 0)[0]).Result()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		equal(t, "free", force(), any([]any{}))
		fence := b.acquire(ownerA, 30000)[1]
		b.fair(ownerB, 30000, 300000, 1)
		equal(t, "an earlier grant", force(fence-1), any([]any{}))
		equal(t, "held", force(fence), any([]any{ownerA, fence}))
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerB + " 0"})
		equal(t, "again", force(), any([]any{}))
		b.c.HSet(t.Context(), b.n.Lock, "mode", "write", ownerA, 1)
		equal(t, "without a fence", force(), any([]any{ownerA, int64(0)}))
	})
}

func TestDropShortensOrReleases(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel)
		drop := func(owner string, fence, grace int64) []int64 {
			return b.must(b.s["drop"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, fence, 0, "PUBLISH", b.next(), grace, "", 0)
		}
		fence := b.acquire(ownerA, 30000)[1]
		b.acquire(ownerA, 30000)
		equal(t, "stranger", drop(ownerB, 0, 0), []int64{0})
		equal(t, "other grant", drop(ownerA, fence+1, 0), []int64{0})
		drop(ownerA, fence, 60000)
		if !within(b.pttl(), 30000) {
			t.Fatalf("a long grace left ttl %v", b.pttl())
		}
		equal(t, "grace", drop(ownerA, fence, 10000), []int64{1})
		if !within(b.pttl(), 10000) {
			t.Fatalf("grace left ttl %v", b.pttl())
		}
		equal(t, "waiters are told that it ends earlier", heard(), []string{"redisson_lock__channel:{foo} 0"})
		equal(t, "none", drop(ownerA, fence, 0), []int64{1})
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0"})
		equal(t, "hash", b.hash(), map[string]string{})
	})
}

func TestInfoTellsTheHolder(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		info := func() []any {
			v, err := b.c.Eval(t.Context(), b.s["info"].Text(), []string{b.n.Lock, b.n.Queue}).Slice()
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
		equal(t, "free", info(), []any{})
		fence := b.acquire(ownerA, 30000)[1]
		b.fair(ownerB, 30000, 300000, 1)
		got := info()
		if ttl := got[2].(int64); ttl <= 0 || ttl > 30000 {
			t.Fatalf("ttl %d", ttl)
		}
		got[2] = nil
		equal(t, "held", got, []any{ownerA, int64(1), nil, fence, int64(1)})
	})
}

func TestScriptHeadersNameKeysArgumentsAndReturns(t *testing.T) {
	files, err := filepath.Glob("script/*.lua")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	keys := regexp.MustCompile(`^-- KEYS\[(\d)(\.\.n)?\] +[a-z]+ +\S`)
	args := regexp.MustCompile(`^-- ARGV\[(\d\d?)(\.\.(3n)?)?\] *[a-z_]+(, [a-z_]+)* +\S`)
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		header, body, ok := strings.Cut(string(text), "\n\n")
		if !ok {
			t.Errorf("%s: no blank line after the header", file)
			continue
		}
		if first := "-- " + filepath.Base(file) + ": "; !strings.HasPrefix(header, first) {
			t.Errorf("%s: does not start with %q", file, first)
		}
		if !strings.Contains(header, "\n-- Returns  ") {
			t.Errorf("%s: no line with what it returns", file)
		}
		nKeys, nArgs := 0, 0
		for line := range strings.Lines(header) {
			if !strings.HasPrefix(line, "--") || len(line) > 121 {
				t.Errorf("%s: header line %q", file, line)
			}
			if strings.HasPrefix(line, "-- KEYS") {
				nKeys++
				if !keys.MatchString(line) {
					t.Errorf("%s: %q", file, line)
				}
			}
			if strings.HasPrefix(line, "-- ARGV") {
				nArgs++
				if !args.MatchString(line) {
					t.Errorf("%s: %q", file, line)
				}
			}
		}
		for i := 1; i <= 20; i++ {
			key, arg := fmt.Sprintf("KEYS[%d]", i), fmt.Sprintf("ARGV[%d]", i)
			if strings.Contains(body, key) && i > nKeys {
				t.Errorf("%s uses %s and does not name it", file, key)
			}
			if strings.Contains(body, arg) && i > nArgs {
				t.Errorf("%s uses %s and does not name it", file, arg)
			}
		}
	}
}

func TestEveryScriptFileIsEmbedded(t *testing.T) {
	byName := scripts()
	files, _ := filepath.Glob("script/*.lua")
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		one := byName[strings.TrimSuffix(filepath.Base(file), ".lua")]
		header, _, _ := strings.Cut(string(text), "\n\n")
		if one == nil || !strings.Contains(one.Text(), header) || strings.Contains(one.Text(), "--@") {
			t.Errorf("%s is not embedded under its name", file)
		}
	}
	equal(t, "scripts", len(byName), len(files))
	for id, s := range script.All() {
		equal(t, s.Name(), s.ID(), id)
	}
}

func TestSHAIsTheNameRedisGives(t *testing.T) {
	srv := redistest.Start(t)
	s := scripts()["acquire"]
	got, err := srv.Client(t).ScriptLoad(t.Context(), s.Text()).Result()
	if err != nil || got != s.SHA() {
		t.Fatalf("SCRIPT LOAD says %s, %v; want %s", got, err, s.SHA())
	}
	_, err = srv.Client(t).EvalSha(t.Context(), s.SHA(), []string{"k", "f", "c"}, "o", 1000, 1).Result()
	if err != nil || errors.Is(err, redis.Nil) {
		t.Fatal(err)
	}
}
