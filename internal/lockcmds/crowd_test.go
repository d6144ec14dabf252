package lockcmds

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/turns"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// first is the first of the plain waiters of a proxy that asks, whose place stays in the queue or not.
func (b *bench) first(owner string, stays, enqueue int) []int64 {
	b.t.Helper()
	out := b.must(b.s["crowd"], []string{b.n.Lock, b.n.Queue, b.n.Deadlines, b.n.Fence, b.n.Channel},
		append(b.asks(owner, 30000), "", wait, crowd, stays, enqueue, "PUBLISH", "")...)
	if b.grants(owner, out); out[0] == 1 {
		return out[:5]
	}
	return out
}

func TestCrowdHasOnePlaceInTheQueue(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		const none, head, behind = int64(turns.None), int64(turns.Head), int64(turns.Behind)
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
		turn := b.n.Channel
		b.listen(b.n.NameChannel(ownerB), b.n.NameChannel(ownerC), b.n.NameChannel(crowd))
		b.acquire(ownerA, 30000)
		b.fair(ownerB, 30000, wait, 1)
		b.fair(ownerC, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		equal(t, "kept for", b.c.Get(t.Context(), turn).Val(), ownerB)
		equal(t, "a newcomer", b.acquire(ownerA, 30000), []int64{0, -2})
		equal(t, "a crowd", b.first(ownerA, 1, 0), []int64{0, -2, int64(turns.Behind)})
		b.leave(ownerB)
		equal(t, "kept for the next", b.c.Get(t.Context(), turn).Val(), ownerC)
		equal(t, "C", b.fair(ownerC, 30000, wait, 1)[0], int64(1))
		b.release(ownerC, 0, 0)
		equal(t, "kept for", b.c.Get(t.Context(), turn).Val(), crowd)
		equal(t, "the crowd", b.first(ownerA, 0, 0)[0], int64(1))
		b.release(ownerA, 0, 0)
		equal(t, "nobody waits", b.acquire(ownerA, 30000)[0], int64(1))
		b.fair(ownerB, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		if d := b.c.PTTL(t.Context(), turn).Val(); d <= 0 || d > queue.TurnLimit {
			t.Fatalf("it is kept for %v", d)
		}
		b.c.Del(t.Context(), turn) // as when it has not come
		equal(t, "a newcomer after that", b.acquire(ownerA, 30000)[0], int64(1))
	})
}

func TestQueueOfAnotherTypeStopsNoPlainLock(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		b.c.Set(t.Context(), b.n.Queue, "x", 0)
		fence := b.acquire(ownerA, 30000)[1]
		equal(t, "a waiter", b.first(ownerB, 1, 1)[2], int64(turns.None))
		got := b.handoverOf(ownerA, ownerB, 30000, "", crowd, 1)
		equal(t, "hand-over", []int64{got[0], got[2], got[5]}, []int64{2, fence, int64(turns.None)})
		equal(t, "release", b.release(ownerB, 0, 0)[0], int64(1))
		equal(t, "deadlines", b.c.Exists(t.Context(), b.n.Deadlines).Val(), int64(0))
	})
}

// contenders are clients of one proxy that want one lock by that verb.
type contenders struct {
	p       *proxy
	verb    string
	clients int
}

// load has clients take a lock and give it back until there were so many grants, and returns how many each group of them got, and
// the longest wait of one in grants, once they are all at it.
func load(t *testing.T, grants int, groups []contenders) (shares []int, longest int) {
	t.Helper()
	type client struct {
		*session
		group, since int
		wantsLock    bool
	}
	var clients []*client
	for g, group := range groups {
		for range group.clients {
			clients = append(clients, &client{session: group.p.session(2), group: g})
		}
	}
	shares = make([]int, len(groups))
	replies := make(chan *client)
	stop := make(chan struct{})
	for _, c := range clients {
		go func() {
			for {
				select {
				case reply := <-c.Replies:
					c.wantsLock = reply != ":1"
					select {
					case replies <- c:
					case <-stop:
						return
					}
				case <-stop:
					return
				}
			}
		}()
		c.send(groups[c.group].verb + " k")
	}
	defer close(stop)
	for total := 0; total < grants; {
		select {
		case c := <-replies:
			if !c.wantsLock {
				c.since = total
				c.send(groups[c.group].verb + " k")
				continue
			}
			total++
			shares[c.group]++
			if total == grants/4 { // until then proxies connect and subscribe
				for _, other := range clients {
					other.since = total
				}
			} else if total > grants/4 {
				longest = max(longest, total-c.since)
			}
			c.send("UNLOCK k")
		case <-time.After(patience):
			t.Fatalf("no grant after %d: %v", total, shares)
		}
	}
	for _, c := range clients {
		longest = max(longest, grants-c.since)
	}
	return shares, longest
}

func TestEverybodyGetsAShare(t *testing.T) {
	type groups = []contenders
	srv := redistest.Start(t)
	minute := func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }
	for name, of := range map[string]func(p, q *proxy) groups{
		"two proxies":          func(p, q *proxy) groups { return groups{{p, "LOCK", 16}, {q, "LOCK", 16}} },
		"one client at each":   func(p, q *proxy) groups { return groups{{p, "LOCK", 1}, {q, "LOCK", 1}} },
		"LOCK beside FAIRLOCK": func(p, _ *proxy) groups { return groups{{p, "LOCK", 16}, {p, "FAIRLOCK", 16}} },
		"few beside many":      func(p, q *proxy) groups { return groups{{p, "FAIRLOCK", 3}, {p, "LOCK", 24}, {q, "LOCK", 3}} },
		"both at two": func(p, q *proxy) groups {
			return groups{{p, "LOCK", 6}, {p, "FAIRLOCK", 6}, {q, "LOCK", 6}, {q, "FAIRLOCK", 6}}
		},
		"fair here and plain there": func(p, q *proxy) groups { return groups{{p, "FAIRLOCK", 2}, {q, "LOCK", 2}} },
	} {
		t.Run(name, func(t *testing.T) {
			p, q := startProxy(t, srv, minute), startProxy(t, srv, minute)
			crowds := of(p, q)
			clients := 0
			for _, g := range crowds {
				clients += g.clients
			}
			grants := max(400, 40*clients)
			shares, longest := load(t, grants, crowds)
			for i, g := range crowds {
				part := float64(shares[i]) / float64(grants) * float64(clients) / float64(g.clients)
				t.Logf("%d %s: %.2f of their share", g.clients, g.verb, part)
				if part < 0.8 || part > 1.25 {
					t.Errorf("%d %s got %.2f of their share", g.clients, g.verb, part)
				}
			}
			if longest > 10*max(clients, 12) { // two of them are so fast that a pause of this machine counts
				t.Errorf("somebody waited for %d grants among %d clients", longest, clients)
			}
		})
		srv.Do(t, "FLUSHALL")
	}
}

// Redisson's clients see the plain waiters of a proxy as one waiter, and wake it by name alone.
func TestCrowdTakesTurnsWithRedisson(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute })
	a, b, asks := p.session(2), p.session(2), p.session(2)
	j, k := newRedisson(t, srv, 1, "k"), newRedisson(t, srv, 2, "k")
	if got := j.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	for _, w := range []*session{a, b} {
		w.send("LOCK k")
		w.awaitWaiting()
	}
	p.awaitAttempts("k")
	srv.Do(t, "PUBLISH", script.ChannelOf("k"), "0") // as when another proxy has been faster
	inRedis := func() []string { return srv.Client(t).LRange(t.Context(), script.QueueOf("k"), 0, -1).Val() }
	var place string
	redistest.Eventually(t, patience, "the place and its subscription", func() bool {
		return p.waitQueue("k", func(q *queue.Queue) bool {
			place = q.Names().Place
			return q.Queued() && q.Settled()
		})
	})
	k.fair()
	k.listen(script.NamesOf("k").NameChannel(k.owner))
	equal(t, "queue", inRedis(), []string{place, k.owner})
	if info := asks.do("LOCKINFO k"); !strings.Contains(info, "fair-waiters :1 local-waiters :2") {
		t.Errorf("LOCKINFO: %s", info)
	}
	j.fairRelease()
	fenceIn(t, a.reply()) // long before a lease ends
	if got := k.fair(); got == nil {
		t.Fatal("redisson overtook")
	}
	a.want("UNLOCK k", ":1")
	fenceIn(t, b.reply()) // the same turn
	b.want("UNLOCK k", ":1")
	k.awaitMessage()
	if got := k.fair(); got != nil {
		t.Fatalf("redisson: %v", got)
	}
	equal(t, "queue", inRedis(), []string{})
}

// A waiter that has died leaves a place behind. No lock is kept for it; nor, for long, for the plain waiters of a proxy that has died.
func TestPlaceOfTheDeadHoldsUpNobody(t *testing.T) {
	onBoth(t, func(t *testing.T, b *bench) {
		left := "ffffffff-0000-4000-8000-000000000006:plain-1"
		now := time.Now().UnixMilli()
		b.acquire(ownerA, 30000)
		b.fair(ownerB, 30000, wait, 1)
		b.release(ownerA, 0, 0)
		equal(t, "nobody listens for B", b.acquire(ownerA, 30000)[0], int64(1))
		b.leave(ownerB)
		b.c.RPush(t.Context(), b.n.Queue, left)
		b.c.ZAdd(t.Context(), b.n.Deadlines, redis.Z{Score: float64(now + wait), Member: left})
		b.release(ownerA, 0, 0)
		equal(t, "it may be about to subscribe", b.first(ownerB, 1, 1), []int64{0, -2, int64(turns.Behind)})
		b.c.Del(t.Context(), b.n.Channel) // a moment later
		equal(t, "it has not come", b.first(ownerB, 1, 1)[0], int64(1))
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

// Who waits at a proxy that stops, or hangs up, leaves no place behind.
func TestCrowdThatLeavesTakesItsPlaceAlong(t *testing.T) {
	srv := redistest.Start(t)
	minute := func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }
	p, q := startProxy(t, srv, minute), startProxy(t, srv, minute)
	holder, first := q.session(2), q.session(2)
	holder.fence("LOCK k")
	first.send("FAIRLOCK k")
	first.awaitWaiting()
	w, timed := p.session(2), p.session(2)
	for _, s := range []*session{w, timed} {
		s.send("LOCK k WAIT 600000")
		s.awaitWaiting()
	}
	redistest.Eventually(t, patience, "the place", func() bool {
		return srv.Client(t).LLen(t.Context(), script.QueueOf("k")).Val() == 2
	})
	w.hangUp()
	timed.hangUp()
	redistest.Eventually(t, patience, "the place to go", func() bool {
		return srv.Client(t).LLen(t.Context(), script.QueueOf("k")).Val() == 1
	})
	holder.want("UNLOCK k", ":1")
	fenceIn(t, first.reply())
	first.want("UNLOCK k", ":1")
	if n := srv.Client(t).Exists(t.Context(), "k", script.QueueOf("k"), script.DeadlinesOf("k")).Val(); n != 0 {
		t.Errorf("%d keys left", n)
	}
}
