package lockcmds

import (
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

const wait = 300000

func near(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got < want-3000 || got > want+3000 {
		t.Fatalf("%s: %d, want about %d (%+d)", what, got, want, got-want)
	}
}

func TestFairQueueKeepsRedissonsArithmetic(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.channel, b.n.fairChannel(ownerB), b.n.fairChannel(ownerC))
		now := time.Now().UnixMilli()
		fence := b.fair(ownerA, 30000, wait, 1)[1]
		got := b.fair(ownerB, 30000, wait, 1)
		equal(t, "B asks", []int64{got[0], got[2]}, []int64{0, 1})
		near(t, "B's ttl", got[1], 30000)
		near(t, "B's deadline", b.score(ownerB), now+330000)
		got = b.fair(ownerC, 30000, 5000, 1)
		equal(t, "C asks", []int64{got[0], got[2]}, []int64{0, 2})
		equal(t, "C's deadline", b.score(ownerC), b.score(ownerB)+5000)
		again := b.fair(ownerC, 30000, 5000, 1)
		equal(t, "C asks again", []int64{again[0], again[2]}, []int64{0, 2})
		equal(t, "queue", b.queue(), []string{ownerB, ownerC})
		equal(t, "re-entry", b.fair(ownerA, 30000, wait, 1), []int64{1, fence, 2})
		b.release(ownerA, 30000, 0)
		equal(t, "release", b.release(ownerA, 30000, 0)[0], int64(1))
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerB + " 0"})
		equal(t, "the head stays until it acquires", b.queue(), []string{ownerB, ownerC})
		equal(t, "not C's turn", b.fair(ownerC, 30000, 5000, 1), []int64{0, -2, 2})
		equal(t, "stranger without a place", b.fair(ownerD, 30000, wait, 0), []int64{0, -2, 0})
		before := b.score(ownerC)
		next := b.fair(ownerB, 30000, wait, 1)
		if next[0] != 1 || next[1] <= fence {
			t.Fatalf("B: %v after fence %d", next, fence)
		}
		near(t, "C's deadline without B's wait, and not below 8 s", b.score(ownerC), max(before-wait, time.Now().UnixMilli()+8000))
		equal(t, "queue", b.queue(), []string{ownerC})
	})
}

func TestFairGrantTakesItsWaitOffTheOthers(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		c, d := b.score(ownerC), b.score(ownerD)
		b.release(ownerA, 0, 0)
		equal(t, "B", b.fair(ownerB, 30000, wait, 1)[0], int64(1))
		equal(t, "C's deadline", b.score(ownerC), c-wait)
		equal(t, "D's deadline", b.score(ownerD), d-wait)
	})
}

func TestFairLeaveClosesTheGap(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		c, d := b.score(ownerC), b.score(ownerD)
		equal(t, "absent", b.leave("nobody", wait), []int64{0})
		equal(t, "leave", b.leave(ownerB, wait), []int64{1})
		equal(t, "replayed", b.leave(ownerB, wait), []int64{0})
		equal(t, "C's deadline", b.score(ownerC), c-wait)
		equal(t, "D's deadline", b.score(ownerD), d-wait)
		equal(t, "queue", b.queue(), []string{ownerC, ownerD})
		if err := b.c.ZScore(t.Context(), b.n.deadlines, ownerB).Err(); !errors.Is(err, redis.Nil) {
			t.Fatalf("B still has a deadline: %v", err)
		}
	})
}

func TestFairHeadThatLeavesAFreeLockWakesTheNext(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.fairChannel(ownerB), b.n.fairChannel(ownerC), b.n.fairChannel(ownerD))
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		to := func(owner string) string { return "redisson_lock__channel:{foo}:" + owner + " 0" }
		b.leave(ownerB, wait)
		equal(t, "lock held: who may wait elsewhere for the same owner", heard(), []string{to(ownerB)})
		b.c.Del(t.Context(), b.n.lock)
		b.leave(ownerD, wait)
		equal(t, "not the head", heard(), []string{to(ownerD)})
		b.fair(ownerD, 30000, wait, 1)
		b.leave(ownerC, wait)
		equal(t, "head of a free lock", heard(), []string{to(ownerC), to(ownerD)})
	})
}

func TestFairDropsOverdueHeadsButNotTheCaller(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC} {
			b.fair(owner, 30000, wait, 1)
		}
		b.c.Del(t.Context(), b.n.lock)
		past := float64(time.Now().Add(-time.Second).UnixMilli())
		b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: past, Member: ownerB})
		equal(t, "B, overdue and alive, acquires", b.fair(ownerB, 30000, wait, 1)[0], int64(1))
		b.release(ownerB, 0, 0)
		b.fair(ownerD, 30000, wait, 1)
		b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: past, Member: ownerC})
		equal(t, "D acquires after C was dropped", b.fair(ownerD, 30000, wait, 1)[0], int64(1))
		equal(t, "queue", b.queue(), []string{})
	})
}

func TestFairGivesAHeadWithoutADeadlineOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.RPush(t.Context(), b.n.queue, ownerB)
		equal(t, "C asks", b.fair(ownerC, 30000, wait, 1), []int64{0, -2, 2})
		near(t, "B's deadline", b.score(ownerB), time.Now().UnixMilli()+wait)
	})
}

func TestFairRepairsAPlaceWithoutListEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: 1, Member: ownerB})
		equal(t, "B asks", b.fair(ownerB, 30000, wait, 1)[2], int64(1))
		equal(t, "queue", b.queue(), []string{ownerB})
		near(t, "B's deadline", b.score(ownerB), time.Now().UnixMilli()+330000)
	})
}

func TestFairGrantLeavesLatecomersEightSeconds(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		now := time.Now().UnixMilli()
		b.c.RPush(t.Context(), b.n.queue, ownerB, ownerC)
		b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: float64(now + 100000), Member: ownerB},
			redis.Z{Score: float64(now + 105000), Member: ownerC})
		equal(t, "B", b.fair(ownerB, 30000, wait, 1)[0], int64(1))
		near(t, "C's deadline", b.score(ownerC), time.Now().UnixMilli()+8000)
	})
}

func TestRefreshMovesEverybodyBehind(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		now := time.Now().UnixMilli()
		b.c.RPush(t.Context(), b.n.queue, ownerA, ownerB, ownerC, ownerD)
		for i, owner := range []string{ownerA, ownerB, ownerC} {
			b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: float64(now + 100000*int64(i+1)), Member: owner})
		}
		got := b.must(b.s.refresh, []string{b.n.queue, b.n.deadlines}, wait, ownerB, ownerD, "nobody")
		equal(t, "present", got, []int64{2})
		equal(t, "A, foreign and ahead, stays", b.score(ownerA), now+100000)
		near(t, "B", b.score(ownerB), now+wait)
		equal(t, "C, foreign and behind, keeps its distance", b.score(ownerC), b.score(ownerB)+100000)
		near(t, "D gets a deadline", b.score(ownerD), now+wait)
		before := b.score(ownerC)
		b.c.ZAdd(t.Context(), b.n.deadlines, redis.Z{Score: float64(now + 2*wait), Member: ownerB})
		b.must(b.s.refresh, []string{b.n.queue, b.n.deadlines}, wait, ownerB)
		equal(t, "fresh deadlines stay", []int64{b.score(ownerB), b.score(ownerC)}, []int64{now + 2*wait, before})
	})
}

func TestDeadHeadIsRemovedOnlyIfNobodyListens(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		keys := []string{b.n.lock, b.n.queue, b.n.deadlines, b.n.channel}
		deaf := 0
		dead := func(head string) []int64 { return b.must(b.s.deadHead, keys, head, "PUBLISH", wait, deaf) }
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC} {
			b.fair(owner, 30000, wait, 1)
		}
		c := b.score(ownerC)
		equal(t, "lock held", dead(ownerB), []int64{0, 0})
		b.c.Del(t.Context(), b.n.lock)
		equal(t, "not the head", dead(ownerC), []int64{0, 0})
		heard := b.listen(b.n.fairChannel(ownerC))
		equal(t, "dead", dead(ownerB), []int64{1, 0})
		equal(t, "the next is woken", heard(), []string{"redisson_lock__channel:{foo}:" + ownerC + " 0"})
		equal(t, "C's deadline", b.score(ownerC), c-wait)
		equal(t, "alive", dead(ownerC), []int64{0, 1})
		equal(t, "queue", b.queue(), []string{ownerC})
		deaf = 1
		equal(t, "deaf", dead(ownerC), []int64{1, 1})
		equal(t, "woken as well", heard(), []string{"redisson_lock__channel:{foo}:" + ownerC + " 0", "redisson_lock__channel:{foo}:" + ownerC + " 0"})
		equal(t, "queue", b.queue(), []string{})
	})
}
