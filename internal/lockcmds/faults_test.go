package lockcmds

import (
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/lockcmds/jobs"
	"github.com/lockproxy/lockproxy/internal/lockcmds/redislink"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestWaitersSurviveARestartOfRedis(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, b, c := p.session(2), q.session(2), q.session(2)
	a.fence("LOCK k")
	before := a.fence("LOCK j")
	b.send("LOCK k")
	b.awaitWaiting()
	c.send("FAIRLOCK j")
	c.awaitWaiting()
	srv.Kill()
	srv.Restart() // without data
	fenceIn(t, b.reply())
	if after := fenceIn(t, c.reply()); after <= before {
		t.Fatalf("fence %d after %d", after, before)
	}
}

func TestUnreachableRedisLosesTheLeaseAtItsDeadline(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 2 * time.Second })
	a := p.session(3)
	fence := itoa(a.fence("LOCK k"))
	srv.Pause()
	start := time.Now()
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" deadline]")
	if took := time.Since(start); took > 7*time.Second {
		t.Errorf("told after %v", took)
	}
	srv.Continue()
	a.want("UNLOCK k", lostLeaseWords)
}

func TestEngineWaitsForARedisThatIsDown(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k PX 60000") // before the engine's own client has ever connected
	srv.Kill()
	b.Lane.Fail(contract.ErrInDoubt)
	b.send("LOCK k WAIT 60000") // its lane has broken: the outcome is in doubt
	b.quiet(200 * time.Millisecond)
	srv.Restart()
	fenceIn(t, b.reply())
}

func TestRefusedSubscriptionIsTheWaitersAnswer(t *testing.T) {
	srv := redistest.Start(t)
	srv.Do(t, "ACL", "SETUSER", "locker", "on", ">pw", "~*", "+@all", "resetchannels")
	p := startProxy(t, srv, func(o *Options) {
		o.Redis = linkTo(t, redislink.Options{Addr: srv.Addr(), User: "locker", Password: "pw"})
	})
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		if got := b.do(verb + " k"); !strings.HasPrefix(got, "-NOPERM ") {
			t.Errorf("%s: %s", verb, got)
		}
	}
	if n := srv.Client(t).Exists(t.Context(), "redisson_lock_queue:{k}").Val(); n != 0 {
		redistest.Eventually(t, patience, "the queue to be empty", func() bool {
			return srv.Client(t).Exists(t.Context(), "redisson_lock_queue:{k}").Val() == 0
		})
	}
}

func TestTinyPoolServesEverybody(t *testing.T) {
	srv := redistest.Start(t)
	pool, err := jobs.New(1)
	if err != nil {
		t.Fatal(err)
	}
	p := startProxy(t, srv, func(o *Options) { o.Lease, o.Jobs = time.Minute, pool })
	contend(t, []*proxy{p}, 10, 5, 300*time.Millisecond, "LOCK", "FAIRLOCK")
}

// contend has sessions take and give back a few locks, hang up and come back, and checks that no two hold one at once,
// that fences grow, and that everything is free at the end. Holding is judged between the reply to the acquire and the
// sending of the release.
func contend(t *testing.T, proxies []*proxy, clients, keys int, d time.Duration, verbs ...string) (grants int64) {
	t.Helper()
	holding := make([]atomic.Int64, keys)
	lastFence := make([]atomic.Int64, keys)
	var total atomic.Int64
	var wg sync.WaitGroup
	until := time.Now().Add(d)
	for n := range clients {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(n), 1))
			p := proxies[n%len(proxies)]
			s := p.session(2)
			for time.Now().Before(until) {
				k := rng.IntN(keys)
				key := "key" + itoa(int64(k))
				line := verbs[rng.IntN(len(verbs))] + " " + key
				switch rng.IntN(10) {
				case 0:
					line += " WAIT " + itoa(int64(rng.IntN(20)))
				case 1: // hangs up while it waits
					s.send(line + " GRACE 0")
					time.Sleep(time.Duration(rng.IntN(3000)) * time.Microsecond)
					s.hangUp()
					s = p.session(2)
					continue
				}
				reply := s.do(line)
				if reply == "(nil)" {
					continue
				}
				fence := fenceIn(t, reply)
				if holding[k].Add(1) != 1 {
					t.Errorf("%s is held twice", key)
				}
				if last := lastFence[k].Swap(fence); last >= fence {
					t.Errorf("%s: fence %d after %d", key, fence, last)
				}
				total.Add(1)
				holding[k].Add(-1)
				if got := s.do("UNLOCK " + key); got != ":1" {
					t.Errorf("UNLOCK %s: %s", key, got)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(d + 3*patience):
		t.Fatal("somebody waits for ever")
	}
	c := proxies[0].srv.Client(t)
	redistest.Eventually(t, patience, "everything to be free", func() bool {
		left, err := c.Keys(t.Context(), "*key*").Result()
		return err == nil && len(left) == 0
	})
	for _, p := range proxies {
		redistest.Eventually(t, patience, "no lease to be watched", func() bool { return p.e.watchdog.Len() == 0 })
	}
	return total.Load()
}
