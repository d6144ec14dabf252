package script_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

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
		equal(t, "the re-entry has shortened the lease", heard(), []string{"redisson_lock__channel:{foo} 0"})
		equal(t, "last release", b.release(ownerA, 30000, first[1]), []int64{1, first[1], 1})
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0"})
		equal(t, "replayed release", b.release(ownerA, 30000, first[1]), []int64{-1})
		equal(t, "hash", b.hash(), map[string]string{})
		if next := b.acquire(ownerB, 30000); next[1] <= first[1] {
			t.Fatalf("fence %d after %d", next[1], first[1])
		}
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
		for _, poison := range []string{
			"1e300", "-1e300", "inf", "-inf", "nan", "-nan", "text", "", "-5", "1.5", "0x7fffffffffffffff", "\x00\x01",
			"9007199254740992", "9007199254740993", "9223372036854775807", "18446744073709551616", strings.Repeat("9", 400),
		} {
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
		b.c.HDel(t.Context(), b.n.Lock, "fence")
		b.c.Del(t.Context(), b.n.Fence)
		b.c.RPush(t.Context(), b.n.Fence, "a")
		grown("list, of a lock without a fence", b.acquire(ownerA, 30000), 1)
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

// handoverOf takes, for the plain waiter, its owner, lease and channel, the place of the plain waiters, whether it
// stays; for the fair one its owner, lease, channel and place.
func (b *bench) handoverOf(owner string, who ...any) []int64 {
	b.t.Helper()
	args := []any{owner, 0, "PUBLISH", b.releases(owner), 30000, "", 300000, who[3], who[4], who[0], who[1], "", who[2]}
	if len(who) > 5 {
		args = append(args, who[5], who[6], "", who[7], who[8])
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
		equal(t, "shorter, to a fair waiter", heard(), []string{
			"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerC + " 0",
			"redisson_lock__channel:{foo}:" + ownerC + " 1000", // it is the first now
		})
	})
}

func TestRenewRenewsOnlyWhatIsOurs(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		k := []string{"k1", "k2", "k3", "k4", "k5"}
		grant := func(key, owner string) int64 {
			return b.must(b.s["acquire"], []string{key, b.n.Fence, b.n.Channel}, owner, 10000, "PUBLISH")[1]
		}
		f1 := grant("k1", ownerA)
		grant("k2", ownerB)
		f4 := grant("k4", ownerA)
		b.c.Set(t.Context(), "k5", "x", time.Minute)
		got := b.must(b.s["renew"], k, ownerA, f1, 30000, "", ownerA, 0, 30000, "", ownerA, 0, 30000, "", ownerA, f4+1, 30000, "", ownerA, 0, 1000, "")
		equal(t, "verdicts", got, []int64{1, 0, 0, 0, 0})
		for key, lease := range map[string]int64{"k1": 30000, "k2": 10000, "k4": 10000, "k5": 60000} {
			if ttl := b.c.PTTL(t.Context(), key).Val(); !within(ttl, lease) {
				t.Errorf("%s: ttl %v, want about %d ms", key, ttl, lease)
			}
		}
		equal(t, "any fence", b.must(b.s["renew"], k[3:4], ownerA, 0, 30000, ""), []int64{1})
		equal(t, "longer than that", b.must(b.s["renew"], k[3:4], ownerA, 0, 20000, ""), []int64{1})
		if ttl := b.c.PTTL(t.Context(), "k4").Val(); !within(ttl, 30000) {
			t.Errorf("a renewal has shortened a lease to %v", ttl)
		}
		b.c.Persist(t.Context(), "k4")
		equal(t, "a note alone", b.must(b.s["renew"], k[3:4], ownerA, f4, 0, "#x"), []int64{1})
		if holds := b.c.HGet(t.Context(), "k4", ownerA).Val(); holds != "1" {
			t.Errorf("a note for a lock without a TTL has left %q holds", holds)
		}
	})
}

// Go says the message of the end of a grant as the script does. The end by the handle is told to proxies alone.
func TestForceTellsProxies(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		for _, handle := range []bool{false, true} {
			fence := b.acquire(ownerA, 30000)[1]
			number := strconv.FormatInt(fence, 10)
			text := script.Forced{Owner: ownerA, Fence: fence, Handle: handle}.Message(b.n.Lock)
			told := []string{script.ForcedChannel + " " + text}
			if !handle {
				told = []string{script.Lost(b.n.Lock) + " " + number + " forced", script.ForcedChannel + " " + number + " " + b.n.Lock}
			}
			heard := b.listen(script.Lost(b.n.Lock), script.ForcedChannel)
			call := script.Force{Key: b.n.Lock, Fence: script.AnyGrant}.Call()
			if handle {
				call = script.Force{Key: b.n.Lock, Fence: fence}.Call()
			}
			if err := b.c.Eval(t.Context(), b.s["force"].Text(), call.Keys, "PUBLISH", call.Args[1], call.Args[2], call.Args[3]).Err(); err != nil {
				t.Fatal(err)
			}
			equal(t, "messages", heard(), told)
			m, ok := script.ReadForced(text)
			if m.Lock != b.n.Lock || !ok || m.Fence != fence || m.IsHandle(ownerA) != handle || m.IsHandle(ownerB) {
				t.Errorf("%q is read as %+v, %v", text, m, ok)
			}
		}
		for _, text := range []string{"", "x k", "0 k", "-0 k", "--5 k", "-9223372036854775808 k", "9223372036854775808 k"} {
			if m, ok := script.ReadForced(text); ok {
				t.Errorf("%q is read as %+v", text, m)
			}
		}
	})
}

func TestDropShortensOrReleases(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel)
		drop := func(owner string, fence, grace int64) []int64 {
			return b.must(b.s["drop"], []string{b.n.Lock, b.n.Channel, b.n.Queue}, owner, fence, grace, "PUBLISH", "")
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
