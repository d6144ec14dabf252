package script_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
)

const wait = 300000

func near(t *testing.T, what string, got, want int64) {
	t.Helper()
	if got < want-3000 || got > want+3000 {
		t.Fatalf("%s: %d, want about %d (%+d)", what, got, want, got-want)
	}
}

func TestFairQueueIsFirstComeFirstServed(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.Channel, b.n.NameChannel(ownerB), b.n.NameChannel(ownerC))
		now := time.Now().UnixMilli()
		fence := b.fair(ownerA, 30000, wait, 1)[1]
		got := b.fair(ownerB, 30000, wait, 1)
		equal(t, "B asks", got[0], int64(0))
		near(t, "B's ttl", got[1], 30000)
		near(t, "B's deadline", b.score(ownerB), now+30000+wait)
		equal(t, "C asks", b.fair(ownerC, 30000, wait, 1)[0], int64(0))
		near(t, "C's deadline: one wait for each place", b.score(ownerC), now+30000+2*wait)
		before := b.score(ownerC)
		equal(t, "C asks again", b.fair(ownerC, 30000, wait, 1)[0], int64(0))
		equal(t, "C's deadline", b.score(ownerC), before)
		equal(t, "queue", b.queue(), []string{ownerB, ownerC})
		equal(t, "re-entry", b.fair(ownerA, 30000, wait, 1), []int64{1, fence, 2})
		heard() // if Redis stood still in the middle of the re-entry, its lease is shorter, and the waiters were told
		b.release(ownerA, 30000, 0)
		equal(t, "release", b.release(ownerA, 30000, 0)[0], int64(1))
		equal(t, "messages", heard(), []string{"redisson_lock__channel:{foo} 0", "redisson_lock__channel:{foo}:" + ownerB + " 0"})
		equal(t, "the head stays until it acquires", b.queue(), []string{ownerB, ownerC})
		equal(t, "not C's turn", b.fair(ownerC, 30000, wait, 1), []int64{0, -2, 0})
		equal(t, "stranger without a place", b.fair(ownerD, 30000, wait, 0), []int64{0, -2, 0})
		next := b.fair(ownerB, 30000, wait, 1)
		if next[0] != 1 || next[1] <= fence {
			t.Fatalf("B: %v after fence %d", next, fence)
		}
		equal(t, "C's deadline", b.score(ownerC), before)
		equal(t, "queue", b.queue(), []string{ownerC})
	})
}

func TestFairHeadThatLeavesAFreeLockWakesTheNext(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		heard := b.listen(b.n.NameChannel(ownerB), b.n.NameChannel(ownerC), b.n.NameChannel(ownerD))
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		to := func(owner string) string { return "redisson_lock__channel:{foo}:" + owner + " 0" }
		b.leave(ownerB)
		equal(t, "lock held: who may wait elsewhere for the same owner, and the next", heard(), []string{to(ownerB), to(ownerC)})
		b.c.Del(t.Context(), b.n.Lock)
		b.leave(ownerD)
		equal(t, "not the head", heard(), []string{to(ownerD)})
		b.fair(ownerD, 30000, wait, 1)
		b.leave(ownerC)
		equal(t, "head of a free lock", heard(), []string{to(ownerC), to(ownerD)})
	})
}

func TestFairDropsOverdueHeadsThatNobodyListensFor(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC} {
			b.fair(owner, 30000, wait, 1)
		}
		past := float64(time.Now().Add(-time.Hour).UnixMilli())
		overdue := func(owner string) {
			b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: past, Member: owner})
		}
		overdue(ownerB)
		b.fair(ownerD, 30000, wait, 1)
		equal(t, "queue while the lock is held", b.queue(), []string{ownerB, ownerC, ownerD})
		b.c.Del(t.Context(), b.n.Lock)
		equal(t, "B, overdue and alive, acquires", b.fair(ownerB, 30000, wait, 1)[0], int64(1))
		b.release(ownerB, 0, 0)

		heard := b.listen(b.n.NameChannel(ownerC))
		overdue(ownerC)
		equal(t, "C is overdue and listens: not D's turn", b.fair(ownerD, 30000, wait, 1), []int64{0, -2, 0})
		equal(t, "C is woken", heard(), []string{b.n.NameChannel(ownerC) + " 0"})
		equal(t, "queue", b.queue(), []string{ownerC, ownerD})
		near(t, "C's deadline", b.score(ownerC), time.Now().UnixMilli()+3*wait)
		equal(t, "C", b.fair(ownerC, 30000, wait, 1)[0], int64(1))
		b.release(ownerC, 0, 0)

		overdue(ownerD)
		equal(t, "A acquires after D was dropped", b.fair(ownerA, 30000, wait, 1)[0], int64(1))
		equal(t, "queue", b.queue(), []string{})
	})
}

func TestFairGivesAHeadWithoutADeadlineOne(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.RPush(t.Context(), b.n.Queue, ownerB)
		equal(t, "C asks", b.fair(ownerC, 30000, wait, 1), []int64{0, -2, 0})
		near(t, "B's deadline", b.score(ownerB), time.Now().UnixMilli()+2*wait)
	})
}

func TestFairRepairsAPlaceWithoutListEntry(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: 1, Member: ownerB})
		equal(t, "B asks", b.fair(ownerB, 30000, wait, 1)[0], int64(0))
		equal(t, "queue", b.queue(), []string{ownerB})
		near(t, "B's deadline", b.score(ownerB), time.Now().UnixMilli()+330000)
	})
}

// The deadlines are a key of their own, which may be evicted or deleted alone.
func TestPlacesSurviveTheirDeadlines(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		forget := func() { b.c.Del(t.Context(), b.n.Deadlines) }
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		forget()
		for range 2 {
			for _, owner := range []string{ownerC, ownerD, ownerB} {
				equal(t, owner+" asks again", b.fair(owner, 30000, wait, 1)[0], int64(0))
			}
		}
		equal(t, "queue", b.queue(), []string{ownerB, ownerC, ownerD})
		near(t, "B's deadline", b.score(ownerB), time.Now().UnixMilli()+4*wait)
		forget()
		equal(t, "leave from the middle", b.leave(ownerC), []int64{1})
		equal(t, "leave of a stranger", b.leave("nobody"), []int64{0})
		equal(t, "queue", b.queue(), []string{ownerB, ownerD})
		forget()
		equal(t, "plain waiters queue", b.first(ownerC, 1, 1)[0], int64(0))
		forget()
		equal(t, "and again", b.first(ownerC, 1, 1)[0], int64(0))
		equal(t, "queue", b.queue(), []string{ownerB, ownerD, crowd})
		forget()
		b.leave(ownerB, ownerD)
		equal(t, "queue", b.queue(), []string{crowd})
		forget()
		b.release(ownerA, 0, 0)
		equal(t, "the last of the plain waiters", b.first(ownerC, 0, 0)[0], int64(1))
		equal(t, "keys", b.c.Exists(t.Context(), b.n.Queue, b.n.Deadlines).Val(), int64(0))
	})
}

// Entries that were doubled, as by older proxies, disappear with the next place.
func TestAPlaceIsInTheQueueOnce(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		b.c.RPush(t.Context(), b.n.Queue, ownerB, ownerC, ownerB, ownerB)
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(time.Now().UnixMilli() + wait), Member: ownerB})
		b.fair(ownerD, 30000, wait, 1)
		equal(t, "queue", b.queue(), []string{ownerB, ownerC, ownerD})
	})
}

func TestRefreshKeepsPlacesAheadOfTheClock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		now := time.Now().UnixMilli()
		b.c.RPush(t.Context(), b.n.Queue, ownerA, ownerB, ownerC)
		for i, owner := range []string{ownerA, ownerB, ownerC} {
			b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now + 10*wait*int64(i)), Member: owner})
		}
		refresh := func(owners ...any) []int64 {
			return b.must(b.s["refresh"], []string{b.n.Queue, b.n.Deadlines}, append([]any{wait}, owners...)...)
		}
		equal(t, "present", refresh(ownerA, ownerC, "nobody"), []int64{2})
		near(t, "A", b.score(ownerA), now+4*wait)
		equal(t, "C's deadline does not move back", b.score(ownerC), now+20*wait)
		equal(t, "B is not spoken for", b.score(ownerB), now+10*wait)
	})
}

func TestRefreshPutsRightWhatWasChangedByHand(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		now := time.Now().UnixMilli()
		b.c.RPush(t.Context(), b.n.Queue, ownerA, ownerB, ownerC)
		for _, owner := range []string{ownerA, ownerD} {
			b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now), Member: owner})
		}
		equal(t, "present: A and B, but not D", b.must(b.s["refresh"], []string{b.n.Queue, b.n.Deadlines}, wait, ownerA, ownerB, ownerD), []int64{2})
		near(t, "B gets a deadline", b.score(ownerB), now+4*wait)
		near(t, "so does C, who is not spoken for", b.score(ownerC), now+4*wait)
		equal(t, "D has no place", b.c.ZCard(t.Context(), b.n.Deadlines).Val(), int64(3))
		b.c.HSet(t.Context(), b.n.Lock, "x", 1)
		b.fair(ownerD, 30000, wait, 1)
		equal(t, "and gets one", b.queue(), []string{ownerA, ownerB, ownerC, ownerD})
	})
}

func TestDeadHeadIsRemovedOnlyIfNobodyListens(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		keys := []string{b.n.Lock, b.n.Queue, b.n.Deadlines, b.n.Channel}
		deaf := 0
		dead := func(head string) []int64 { return b.must(b.s["remove_head"], keys, head, "PUBLISH", deaf) }
		to := func(owner string) string { return b.n.NameChannel(owner) + " 0" }
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerD, ownerB, ownerC} {
			b.fair(owner, 30000, wait, 1)
		}
		c := b.score(ownerC)
		heard := b.listen(b.n.NameChannel(ownerC))
		equal(t, "not the head", dead(ownerC), []int64{0, 0})
		equal(t, "nobody listens, though the lock is held", dead(ownerD), []int64{1, 0})
		equal(t, "the next is not woken", heard(), []string(nil))
		b.c.Del(t.Context(), b.n.Lock)
		equal(t, "dead", dead(ownerB), []int64{1, 0})
		equal(t, "the next is woken", heard(), []string{to(ownerC)})
		equal(t, "C's deadline", b.score(ownerC), c)
		equal(t, "alive", dead(ownerC), []int64{0, 1})
		equal(t, "queue", b.queue(), []string{ownerC})
		deaf = 1
		b.c.HSet(t.Context(), b.n.Lock, ownerA, 1)
		equal(t, "lock held", dead(ownerC), []int64{0, 0})
		b.c.Del(t.Context(), b.n.Lock)
		equal(t, "deaf", dead(ownerC), []int64{1, 1})
		equal(t, "woken as well", heard(), []string{to(ownerC), to(ownerC), to(ownerC)})
		equal(t, "queue", b.queue(), []string{})
		equal(t, "the lock is kept for nobody", b.acquire(ownerD, 30000)[0], int64(1))
	})
}

// The waiters of a proxy that dies leave their places behind, perhaps of locks that nobody asks for again.
func TestAQueueThatNobodyTendsGoesAfterADay(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		var all []string
		for i := range 8 {
			all = append(all, fmt.Sprint("bbbbbbbb-0000-4000-8000-000000000002:", 100+i))
		}
		keys := []string{b.n.Queue, b.n.Deadlines}
		for name, tend := range map[string]func(){
			"a waiter is the first": func() {
				b.leave(all...)
				b.fair(all[7], 30000, wait, 1)
			},
			"the crowd is the first": func() {
				b.leave(all...)
				b.first(ownerB, 1, 1)
			},
			"others join": func() {
				for b.c.PTTL(t.Context(), b.n.Queue).Val() <= time.Minute { // one in sixteen
					b.leave(all[6])
					b.fair(all[6], 30000, wait, 1)
				}
			},
			"waiters leave":        func() { b.leave(all[:6]...) },
			"places are refreshed": func() { b.must(b.s["refresh"], keys, wait, b.n.PlaceOf(all[6])) },
		} {
			b.c.Del(t.Context(), keys...)
			for _, owner := range all[:7] {
				b.fair(owner, 30000, wait, 1)
			}
			for _, key := range keys {
				b.c.PExpire(t.Context(), key, time.Minute)
			}
			tend()
			for _, key := range keys {
				if ttl := b.c.PTTL(t.Context(), key).Val(); ttl < 23*time.Hour || ttl > 24*time.Hour {
					t.Errorf("%s: %s goes in %v", name, key, ttl)
				}
			}
		}
	})
}

func TestManyLeaveInOneCall(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		owners := func(from, to int) (list []string) {
			for i := from; i < to; i++ {
				list = append(list, "bbbbbbbb-0000-4000-8000-000000000002:"+fmt.Sprint(i))
			}
			return list
		}
		all := owners(100, 110)
		var channels []string
		for _, owner := range all {
			channels = append(channels, b.n.NameChannel(owner))
		}
		heard := b.listen(channels...)
		for _, gone := range []int{2, 8} { // one by one, and by a pass over the queue
			b.acquire(ownerA, 30000)
			for _, owner := range all {
				b.fair(owner, 30000, wait, 1)
			}
			b.c.Del(t.Context(), b.n.Lock)
			heard()
			equal(t, "leave", b.leave(append([]string{"nobody"}, all[:gone]...)...), []int64{int64(gone)})
			equal(t, "woken", len(heard()), gone+1) // the last is the new head
			equal(t, "places", len(b.queue()), len(all)-gone)
			equal(t, "head", b.queue()[0], all[gone])
			equal(t, "the middle", b.leave(all[gone+1]), []int64{1})
			equal(t, "nobody but that", len(heard()), 1)
			equal(t, "all", b.leave(all...), []int64{int64(len(all) - gone - 1)})
			equal(t, "nothing left", b.c.Exists(t.Context(), b.n.Queue, b.n.Deadlines).Val(), int64(0))
		}
	})
}

func TestTheFirstPlacesAreTold(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.acquire(ownerA, 30000)
		for _, owner := range []string{ownerB, ownerC, ownerD} {
			b.fair(owner, 30000, wait, 1)
		}
		call := script.Places{Key: b.n.Lock, Most: 2}.Call()
		got, err := b.c.Eval(t.Context(), call.Text(), call.Keys, call.Args[0]).StringSlice()
		if err != nil {
			t.Fatal(err)
		}
		equal(t, "places", got, []string{ownerB, ownerC})
	})
}

func TestAMessageThatMayNotBePublishedKeepsBackNoOther(t *testing.T) {
	b := newRig(t)
	sub := b.c.Subscribe(t.Context(), "ours")
	t.Cleanup(func() { _ = sub.Close() })
	if _, err := sub.Receive(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := b.c.Do(t.Context(), "ACL", "SETUSER", "default", "resetchannels", "&ours").Err(); err != nil {
		t.Fatal(err)
	}
	call := script.Tell{Key: key, Messages: []script.Message{{"theirs", "1"}, {"ours", "2"}}}.Call()
	err := b.c.Eval(t.Context(), call.Text(), call.Keys, call.Args[0], call.Args[1], call.Args[2], call.Args[3]).Err()
	if err == nil || !strings.Contains(err.Error(), "channel") {
		t.Errorf("a refusal is not told: %v", err)
	}
	if m, err := sub.ReceiveMessage(t.Context()); err != nil || m.Payload != "2" {
		t.Errorf("%v, %v", m, err)
	}
}
