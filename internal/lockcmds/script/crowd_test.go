package script_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

// first is the first of the plain waiters of a proxy that asks, whose place stays in the queue or not.
func (b *bench) first(owner string, stays, enqueue int) []int64 {
	b.t.Helper()
	out := b.must(b.s["attempt"], []string{b.n.Lock, b.n.Queue, b.n.Channel, b.n.Fence, b.n.Deadlines},
		owner, 30000, "PUBLISH", "", "", "", crowd, "crowd", stays, enqueue, wait)
	if b.grants(owner, out); out[0] == 1 {
		return append(out, 0, 0)[:5]
	}
	return out
}

func TestCrowdHasOnePlaceInTheQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const none, head, behind = int64(table.NoPlace), int64(table.Head), int64(table.Behind)
		got := func(what string, a []int64, status, place int64) {
			t.Helper()
			equal(t, what, []int64{a[0], a[len(a)-1]}, []int64{status, place})
		}
		b.acquire(ownerA, 30000)
		got("nobody else waits", b.first(ownerB, 1, 0), 0, none)
		got("it has lost the race for the lock", b.first(ownerB, 1, 1), 0, head)
		got("asks again", b.first(ownerB, 1, 1), 0, head)
		b.fair(ownerC, 30000, wait, 1)
		equal(t, "queue", b.queue(), []string{crowd, ownerC})
		near(t, "its deadline", b.score(crowd), time.Now().UnixMilli()+wait)
		got("the turn begins", b.handoverOf(ownerA, ownerB, 30000, "", crowd, 1, ownerC, 30000, "", ownerC), 2, head)
		got("and ends", b.handoverOf(ownerB, ownerA, 30000, "", crowd, 0, ownerC, 30000, "", ownerC), 2, none)
		equal(t, "queue", b.queue(), []string{ownerC})
		next := b.handoverOf(ownerA, ownerB, 30000, "", crowd, 1, ownerC, 30000, "", ownerC)
		equal(t, "it is the fair waiter's turn", next[4], int64(2))
		got("the crowd queues", next, 2, head)
		b.fair(ownerD, 30000, wait, 1)
		b.release(ownerC, 0, 0)
		got("the last of them", b.first(ownerB, 0, 0), 1, none)
		equal(t, "queue", b.queue(), []string{ownerD})
		got("behind a fair waiter elsewhere", b.handoverOf(ownerB, ownerA, 30000, "", crowd, 1), 1, behind)
		equal(t, "queue", b.queue(), []string{ownerD, crowd})
	})
}

// A free lock is kept for the first in the queue for a moment: newcomers would always be faster.
func TestFreeLockIsKeptForTheFirst(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.turn = &turn{}
		b.listen(b.n.NameChannel(ownerB), b.n.NameChannel(ownerC), b.n.NameChannel(crowd))
		b.acquire(ownerA, 30000)
		b.fair(ownerB, 30000, wait, 1)
		b.fair(ownerC, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		equal(t, "kept for", b.turn.of, ownerB)
		equal(t, "a newcomer", b.acquire(ownerA, 30000), []int64{0, -2})
		equal(t, "a crowd", b.first(ownerA, 1, 0), []int64{0, -2, int64(table.Behind)})
		b.leave(ownerB)
		equal(t, "kept for the next", b.turn.of, ownerC)
		equal(t, "C", b.fair(ownerC, 30000, wait, 1)[0], int64(1))
		b.release(ownerC, 0, 0)
		equal(t, "kept for", b.turn.of, crowd)
		equal(t, "the crowd", b.first(ownerA, 0, 0)[0], int64(1))
		b.release(ownerA, 0, 0)
		equal(t, "nobody waits", b.acquire(ownerA, 30000)[0], int64(1))
		b.fair(ownerB, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		if d := b.turn.left; d <= 0 || d > table.TurnLimit {
			t.Fatalf("it is kept for %v", d)
		}
		b.turn = &turn{} // as when it has not come
		equal(t, "a newcomer after that", b.acquire(ownerA, 30000)[0], int64(1))
	})
}

func TestQueueOfAnotherTypeStopsNoPlainLock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.Set(t.Context(), b.n.Queue, "x", 0)
		fence := b.acquire(ownerA, 30000)[1]
		equal(t, "a waiter", b.first(ownerB, 1, 1)[2], int64(table.NoPlace))
		got := b.handoverOf(ownerA, ownerB, 30000, "", crowd, 1)
		equal(t, "hand-over", got, []int64{2, got[1], fence, int64(script.NoQueue), 1, int64(table.NoPlace)})
		equal(t, "release", b.release(ownerB, 0, 0), []int64{1, got[1], 1, int64(script.NoQueue)})
		equal(t, "deadlines", b.c.Exists(t.Context(), b.n.Deadlines).Val(), int64(0))
	})
}

// A waiter that has died leaves a place behind. No lock is kept for it; nor, for long, for the plain waiters of a proxy
// that has died.
func TestPlaceOfTheDeadHoldsUpNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		left := "ffffffff-0000-4000-8000-000000000006:plain-1"
		now := time.Now().UnixMilli()
		b.turn = &turn{}
		b.acquire(ownerA, 30000)
		b.fair(ownerB, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		equal(t, "nobody listens for B", b.acquire(ownerA, 30000)[0], int64(1))
		b.leave(ownerB)
		b.c.RPush(t.Context(), b.n.Queue, left)
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now + wait), Member: left})
		equal(t, "behind it", b.first(ownerC, 1, 1)[2], int64(table.Behind))
		b.release(ownerA, 0, 0)
		equal(t, "nobody listens for it", b.first(ownerB, 1, 1)[0], int64(1))
		near(t, "the deadline of the dead", b.score(left), time.Now().UnixMilli()+8000)
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now - 1), Member: left}) // and later still
		b.c.Del(t.Context(), b.n.Lock)
		equal(t, "the next time", b.first(ownerB, 1, 1)[0], int64(1))
		equal(t, "queue", b.queue(), []string{crowd})
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now + 1), Member: crowd})
		equal(t, "who is alive", b.first(ownerA, 1, 1)[0], int64(0))
		near(t, "has a new deadline", b.score(crowd), now+2*wait)
	})
}
