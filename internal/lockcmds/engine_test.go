package lockcmds

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

const (
	notHeldWords   = "-NOTHELD this connection does not hold the lock (is it pooled, shared, or new after a reconnect? name the FENCE of the grant, or an OWNER)"
	notOwnerReply  = "-NOTHELD this OWNER does not hold the lock"
	otherFence     = "-NOTHELD the lock is not held with this fence"
	lostLeaseWords = "-LOSTLEASE the lock was lost before this command: its lease ended, or it was taken away"
)

func TestAcquireExcludesOtherSessions(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	a, b, c := p.session(2), p.session(3), q.session(2)
	first := a.fence("LOCK k")
	b.want("TRYLOCK k", "(nil)")
	c.want("TRYLOCK k", "(nil)")
	c.want("LOCK k WAIT 0", "(nil)")
	c.want("FAIRLOCK k WAIT 0", "(nil)")
	b.want("UNLOCK k", notHeldWords)
	c.want("UNLOCK k", notHeldWords)
	if again := a.fence("LOCK k"); again != first {
		t.Fatalf("re-entry changed the fence from %d to %d", first, again)
	}
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k FENCE 12", otherFence)
	a.want("UNLOCK k", ":1")
	a.want("UNLOCK k", notHeldWords)
	if next := c.fence("TRYLOCK k"); next <= first {
		t.Fatalf("fence %d after %d", next, first)
	}
	c.want("UNLOCK k", ":1")
}

func TestRedissonHashIsWhatOthersSee(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	fence := a.fence("LOCK k")
	got := srv.Client(t).HGetAll(t.Context(), "k").Val()
	equal(t, "hash", got, map[string]string{p.e.opts.UUID + ":1": "1", "fence": itoa(fence), "{request}": got["{request}"], "mode": "lock"})
}

func TestWaiterIsWokenByReleaseHereAndElsewhere(t *testing.T) {
	srv := redistest.Start(t)
	minute := func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }
	p, q := startProxy(t, srv, minute), startProxy(t, srv, minute)
	a := p.session(2)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		for _, w := range []*session{p.session(2), q.session(2)} {
			a.fence("LOCK k")
			w.send(verb + " k")
			w.quiet(50 * time.Millisecond)
			a.want("UNLOCK k", ":1")
			fenceIn(t, w.reply()) // long before the lease ends
			w.want("UNLOCK k", ":1")
		}
	}
}

func TestHandOverIsOneScript(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b := p.session(2), p.session(2)
	first := a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	p.awaitAttempt("k")
	before := p.attempts.Load()
	a.want("UNLOCK k", ":1")
	if second := fenceIn(t, b.reply()); second <= first {
		t.Fatalf("fence %d after %d", second, first)
	}
	if p.handovers.Load() != 1 || p.attempts.Load() != before {
		t.Fatalf("%d hand-overs, %d attempts", p.handovers.Load(), p.attempts.Load()-before)
	}
	b.want("UNLOCK k", ":1")
}

func TestManyWaitersAreServedInOrder(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	holder := p.session(2)
	holder.fence("LOCK k")
	var waiters []*session
	for range 100 {
		w := p.session(2)
		w.send("LOCK k")
		w.awaitWaiting()
		waiters = append(waiters, w)
	}
	before := p.attempts.Load()
	var last int64
	for i, w := range waiters {
		holder.want("UNLOCK k", ":1")
		fence := fenceIn(t, w.reply())
		if fence <= last {
			t.Fatalf("waiter %d: fence %d after %d", i, fence, last)
		}
		last, holder = fence, w
	}
	holder.want("UNLOCK k", ":1")
	if n := p.attempts.Load() - before; n > 20 {
		t.Errorf("%d attempts besides the hand-overs of %d waiters", n, len(waiters))
	}
}

// awaitWaiting returns when the session's acquire has become a waiter: it is in progress, and its first attempt has been answered.
func (s *session) awaitWaiting() {
	s.t.Helper()
	redistest.Eventually(s.t, patience, "the acquire to wait", func() bool {
		s.Lock()
		defer s.Unlock()
		return s.Pending() == 0 && s.p.e.asks(s.ID)
	})
}

func TestFairLockIsGrantedInOrderOfAskingAcrossProxies(t *testing.T) {
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, nil), startProxy(t, srv, nil)
	holder := p.session(2)
	holder.fence("FAIRLOCK k")
	var waiters []*session
	for i := range 10 {
		w := []*proxy{p, q}[i%2].session(2)
		w.send("FAIRLOCK k")
		w.awaitWaiting()
		waiters = append(waiters, w)
	}
	c := srv.Client(t)
	if n := c.LLen(t.Context(), "redisson_lock_queue:{k}").Val(); n != 10 {
		t.Fatalf("%d in the queue", n)
	}
	for i, w := range waiters {
		holder.want("UNLOCK k", ":1")
		fenceIn(t, w.reply())
		for _, later := range waiters[i+1:] {
			if len(later.Replies) > 0 {
				t.Fatalf("waiter %d overtook", i)
			}
		}
		holder = w
	}
	holder.want("UNLOCK k", ":1")
	if n := c.Exists(t.Context(), "k", "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}").Val(); n != 0 {
		t.Fatalf("%d keys left", n)
	}
}

func TestHangUpOfFairWaitersDelaysNobody(t *testing.T) {
	srv := redistest.Start(t)
	minute := func(o *Options) { o.Lease = time.Minute }
	p, q := startProxy(t, srv, minute), startProxy(t, srv, minute)
	holder := p.session(2)
	holder.fence("FAIRLOCK k")
	var waiters []*session
	for i := range 6 {
		w := []*proxy{p, q}[i%2].session(2)
		w.send("FAIRLOCK k")
		w.awaitWaiting()
		waiters = append(waiters, w)
	}
	for _, dead := range []int{0, 3, 5} {
		waiters[dead].hangUp()
	}
	for _, live := range []int{1, 2, 4} {
		start := time.Now()
		holder.want("UNLOCK k", ":1")
		fenceIn(t, waiters[live].reply())
		if took := time.Since(start); took > 5*time.Second {
			t.Errorf("waiter %d waited %v", live, took)
		}
		holder = waiters[live]
	}
	holder.want("UNLOCK k", ":1")
	redistest.Eventually(t, patience, "the queue to be empty", func() bool {
		return srv.Client(t).Exists(t.Context(), "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}").Val() == 0
	})
}

func TestWaiterGivesUpInTime(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b := p.session(2), p.session(3)
	a.fence("LOCK k")
	for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK"} {
		start := time.Now()
		b.want(verb+" k WAIT 150", "(nil)")
		if took := time.Since(start); took < 150*time.Millisecond || took > 5*time.Second {
			t.Errorf("%s WAIT 150 took %v", verb, took)
		}
	}
	redistest.Eventually(t, patience, "the queue to be empty", func() bool {
		return srv.Client(t).Exists(t.Context(), "redisson_lock_queue:{k}", "redisson_lock_timeout:{k}").Val() == 0
	})
	a.want("UNLOCK k", ":1")
	b.fence("TRYLOCK k")
}

func TestHungUpWaiterIsPassedOver(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b, c := p.session(2), p.session(2), p.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	c.send("LOCK k")
	c.awaitWaiting()
	b.hangUp()
	a.want("UNLOCK k", ":1")
	fenceIn(t, c.reply())
	c.want("UNLOCK k", ":1")
	if n := srv.Client(t).Exists(t.Context(), "k").Val(); n != 0 {
		t.Fatal("the lock is still held")
	}
}

func TestWatchdogKeepsTheLockWhileTheSessionLives(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	b.want("TRYLOCK k WAIT 6000", "(nil)")
}

func TestHangUpStopsTheWatchdog(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	start := time.Now()
	a.hangUp()
	fenceIn(t, b.reply())
	if took := time.Since(start); took > 9*time.Second {
		t.Fatalf("the lock was free after %v", took)
	}
	if p.losses.Load() != 0 {
		t.Error("a hang-up counts as a loss")
	}
}

func TestGraceIsWhatIsLeftAfterAHangUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	for _, c := range []struct {
		option        string
		lease, hangUp time.Duration // at least, since the latest acquire and since the hang-up
	}{
		{" GRACE 0", 0, 0},
		{" GRACE 300 PX 60000", 0, 290 * time.Millisecond},
		{" GRACE 60000 PX 2000", 1990 * time.Millisecond, 0},
		{" PX 2000", 1990 * time.Millisecond, 0},
	} {
		a, b := p.session(2), p.session(2)
		a.fence("LOCK k" + c.option)
		acquired := time.Now()
		a.fence("LOCK k" + c.option)
		b.send("LOCK k")
		b.awaitWaiting()
		gone := time.Now()
		a.hangUp()
		fenceIn(t, b.reply()) // long before a lease of a minute ends
		if lease, left := time.Since(acquired), time.Since(gone); lease < c.lease || left < c.hangUp {
			t.Errorf("LOCK k%s: free %v after the acquire and %v after the hang-up", c.option, lease, left)
		}
		b.want("UNLOCK k", ":1")
	}
}

func TestConfiguredGraceAppliesUnlessOneIsGiven(t *testing.T) {
	srv := redistest.Start(t)
	none := time.Duration(0)
	p := startProxy(t, srv, func(o *Options) { o.Lease, o.Grace = time.Minute, &none })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	a.fence("LOCK j GRACE 60000")
	b.send("LOCK k")
	b.awaitWaiting()
	a.hangUp()
	fenceIn(t, b.reply())
	b.want("TRYLOCK j", "(nil)")
}

func TestLossIsToldOnceByEveryWay(t *testing.T) {
	t.Parallel()
	for name, damage := range map[string][]any{
		"deleted": {"DEL", "k"}, "flushed": {"FLUSHALL"}, "other type": {"SET", "k", "x"}, "other owner": {
			"EVAL",
			"redis.call('DEL','k') redis.call('HSET','k','other','1') redis.call('PEXPIRE','k',60000) return 1", 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := redistest.Start(t)
			p := startProxy(t, srv, nil)
			sub := srv.Client(t).Subscribe(t.Context(), "lockproxy:lost:{k}")
			defer sub.Close()
			if _, err := sub.Receive(t.Context()); err != nil {
				t.Fatal(err)
			}
			a := p.session(3)
			fence := itoa(a.fence("LOCK k"))
			srv.Do(t, damage...)
			equal(t, "push", a.push(), ">[lock-lost k :"+fence+" gone]")
			m, err := sub.ReceiveMessage(t.Context())
			if err != nil || m.Payload != fence+" gone" {
				t.Fatalf("channel: %v %v", m, err)
			}
			if name != "other type" {
				a.want("UNLOCK k", lostLeaseWords)
				a.want("UNLOCK k", notHeldWords)
			}
			if n := p.losses.Load(); n != 1 || len(a.Pushes) != 0 {
				t.Errorf("told %d times", n)
			}
		})
	}
}

func TestLossIsLoggedOnceWithKeyAndReason(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	core, logs := observer.New(zap.InfoLevel)
	p := startProxy(t, srv, func(o *Options) { o.Logger = zap.New(core) })
	a := p.session(3)
	fence := a.fence("LOCK k")
	srv.Do(t, "DEL", "k")
	a.push()
	a.want("UNLOCK k", lostLeaseWords)
	lines := logs.FilterFieldKey("key").All()
	if len(lines) != 1 {
		t.Fatalf("%d lines: %v", len(lines), lines)
	}
	fields := lines[0].ContextMap()
	if held, ok := fields["held_seconds"].(float64); !ok || held <= 0 {
		t.Errorf("held_seconds is %v", fields["held_seconds"])
	}
	delete(fields, "held_seconds")
	delete(fields, "owner")
	equal(t, "fields", fields, map[string]any{"key": "k", "fence": fence, "reason": "gone", "client": "10.0.0.1:1", "client_name": "test"})
}

func TestUnlockOfALeaseThatEndedSaysSo(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a := p.session(3)
	a.fence("LOCK k")
	srv.Do(t, "DEL", "k")
	a.want("UNLOCK k", lostLeaseWords) // before the watchdog has noticed
	a.want("UNLOCK k", notHeldWords)
	fence := itoa(a.fence("LOCK k PX 1500"))
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
	a.want("EXTENDLOCK k PX 1000", lostLeaseWords)
	redistest.Eventually(t, patience, "the key to go", func() bool { return srv.Client(t).Exists(t.Context(), "k").Val() == 0 })
	a.want("EXTENDLOCK k PX 1000", notHeldWords)
}

func TestMaxHoldEndsALockOfALivingClient(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	a, b := p.session(3), p.session(2)
	start := time.Now()
	fence := itoa(a.fence("LOCK k MAXHOLD 6000"))
	b.send("LOCK k")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" max-hold]")
	fenceIn(t, b.reply())
	if took := time.Since(start); took < 5990*time.Millisecond || took > 11*time.Second {
		t.Fatalf("ended after %v", took)
	}
	a.want("UNLOCK k", lostLeaseWords)
	b.want("UNLOCK k", ":1")
}

// A client may rely on the lease that it was given last, and on no more.
func TestLeaseGivenLaterOutlastsMaxHold(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	for _, again := range []string{"LOCK k", "EXTENDLOCK k PX 4000"} {
		a, b := p.session(3), p.session(2)
		fence := itoa(a.fence("LOCK k MAXHOLD 3000"))
		start := time.Now()
		a.do(again)
		b.send("LOCK k")
		equal(t, "push", a.push(), ">[lock-lost k :"+fence+" max-hold]")
		fenceIn(t, b.reply())
		if took := time.Since(start); took < 3990*time.Millisecond {
			t.Errorf("%s: the lock ended %v after it", again, took)
		}
		b.want("UNLOCK k", ":1")
	}
}

func TestExplicitOwnerActsFromAnySession(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p, q := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second }), startProxy(t, srv, nil)
	a, b, c := p.session(2), p.session(2), q.session(2)
	fence := a.fence("LOCK k OWNER job")
	if again := b.fence("LOCK k OWNER job"); again != fence {
		t.Fatalf("fence %d, then %d", fence, again)
	}
	c.want("TRYLOCK k", "(nil)")
	a.hangUp()
	c.want("TRYLOCK k WAIT 6000", "(nil)") // b still holds for the owner
	b.want("UNLOCK k OWNER job", ":0")
	b.want("UNLOCK k", notHeldWords)
	c.want("UNLOCK k OWNER job", ":1") // through another proxy
	c.fence("TRYLOCK k WAIT 5000")     // the place of its earlier wait may keep the lock reserved for a moment
}

// A client has written a number of calls into the lock that is larger than all numbers to come. Each command is sent twice at most.
func TestNumbersOfCallsThatAClientHasWritten(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := startProxy(t, srv, nil).session(2)
	a.fence("LOCK k")
	srv.Do(t, "HSET", "k", "{request}", "9000000000000000")
	a.want("EXTENDLOCK k PX 60000", ":1")
	a.want("UNLOCK k", ":0")
}

func TestExtendKeepsTheWatchdogGoing(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	a.want("EXTENDLOCK k PX 4500", ":1")
	b.want("TRYLOCK k WAIT 7000", "(nil)")
	b.want("EXTENDLOCK k PX 2500", notHeldWords)
	a.fence("LOCK j PX 10000")
	a.want("EXTENDLOCK j EX 60", ":1")
	if ttl := srv.Client(t).PTTL(t.Context(), "j").Val(); ttl < 55*time.Second {
		t.Fatalf("ttl %v", ttl)
	}
}

func TestForceUnlockTellsTheHolderAndWakes(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b, c := p.session(3), p.session(2), p.session(2)
	fence := itoa(a.fence("LOCK k"))
	b.send("LOCK k")
	b.awaitWaiting()
	c.want("FORCEUNLOCK k", ":1")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" forced]")
	fenceIn(t, b.reply())
	a.want("UNLOCK k", lostLeaseWords)
	b.want("UNLOCK k", ":1")
	c.want("FORCEUNLOCK k", ":0")
}

// The message of FORCEUNLOCK can be faster than its answer.
func TestForceUnlockLeavesTheNextGrantAlone(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = time.Minute })
	a, b, c := p.session(3), p.session(3), p.session(2)
	fence := itoa(a.fence("LOCK k"))
	b.send("LOCK k")
	b.awaitWaiting()
	answer := c.Lane.HoldBack()
	c.send("FORCEUNLOCK k")
	next := itoa(fenceIn(t, b.reply()))
	answer()
	equal(t, "forced", c.reply(), ":1")
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" forced]")
	b.want("UNLOCK k FENCE "+next, ":1")
	equal(t, "losses", p.losses.Load(), int64(1))
}

func TestInfoAndListShowWhatIsHeld(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b := p.session(2), p.session(3)
	a.want("LOCKINFO k", "(nil)")
	b.want("LOCKINFO k", "(nil)")
	a.want("LOCKLIST", "*[]")
	fence := itoa(a.fence("LOCK k PX 60000 OWNER me"))
	a.fence("LOCK other")
	w := p.session(2)
	w.send("FAIRLOCK k")
	w.awaitWaiting()
	head := "[owner me holds :1 ttl-ms :"
	tail := " fence :" + fence + " fair-waiters :1 local-waiters :1]"
	for s, kind := range map[*session]string{a: "*", b: "%"} {
		if got := s.do("LOCKINFO k"); !strings.HasPrefix(got, kind+head) || !strings.HasSuffix(got, tail) {
			t.Errorf("LOCKINFO: %s", got)
		}
	}
	got := b.do("LOCKLIST MATCH k*")
	if !strings.HasPrefix(got, "*[%[key k owner me holds :1 ttl-ms :") ||
		!strings.HasSuffix(got, " fence :"+fence+" fair-waiters :1 local-waiters :1 client 10.0.0.1:1 name test]]") {
		t.Errorf("LOCKLIST: %s", got)
	}
	if got := b.do("LOCKLIST"); strings.Count(got, "key ") != 2 {
		t.Errorf("LOCKLIST: %s", got)
	}
	if got := b.do("LOCKLIST COUNT 1"); strings.Count(got, "key ") != 1 {
		t.Errorf("LOCKLIST COUNT 1: %s", got)
	}
}

func TestWrongTypeIsRedissOwnError(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	srv.Do(t, "SET", "k", "x")
	for _, line := range []string{"LOCK k", "TRYLOCK k", "FAIRLOCK k", "UNLOCK k", "EXTENDLOCK k PX 1", "LOCKINFO k", "FORCEUNLOCK k"} {
		a.want(line, "-WRONGTYPE Operation against a key holding the wrong kind of value")
	}
	b := p.session(2)
	a.fence("LOCK j")
	b.send("LOCK j")
	b.awaitWaiting()
	srv.Do(t, "SET", "j", "x")
	srv.Do(t, "PUBLISH", "redisson_lock__channel:{j}", "0")
	equal(t, "waiter", b.reply(), "-WRONGTYPE Operation against a key holding the wrong kind of value")
}

func TestWaitersSurviveALostSubscription(t *testing.T) {
	srv := redistest.Start(t)
	minute := func(o *Options) { o.Lease, o.staleHead = time.Minute, time.Minute }
	p, q := startProxy(t, srv, minute), startProxy(t, srv, minute)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		a, b := p.session(2), q.session(2)
		a.fence("LOCK k")
		b.send(verb + " k")
		b.quiet(100 * time.Millisecond)
		srv.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		a.want("UNLOCK k", ":1") // perhaps in the gap
		fenceIn(t, b.reply())    // long before the lease would have ended
		b.want("UNLOCK k", ":1")
	}
}

func TestScriptFlushIsNotNoticed(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 4 * time.Second })
	a, b := p.session(2), p.session(2)
	a.fence("LOCK k")
	b.send("LOCK k")
	b.awaitWaiting()
	for range 5 {
		srv.Do(t, "SCRIPT", "FLUSH")
		b.quiet(time.Second)
	}
	a.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
}

func TestUnsentCommandsSaySo(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	a.fence("LOCK k")
	a.Lane.Fail(contract.ErrUnsent)
	for _, line := range []string{"LOCK k", "LOCK j", "FAIRLOCK j", "UNLOCK k", "EXTENDLOCK k PX 5", "LOCKINFO k", "FORCEUNLOCK k"} {
		a.want(line, "-NOUPSTREAM nothing was sent")
	}
	a.Lane.Fail(nil)
	a.want("UNLOCK k", ":1")
}

func TestAcquireInDoubtIsLookedUp(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a, b := p.session(2), p.session(2)
	a.Lane.Fail(contract.ErrInDoubt)
	first := a.fence("LOCK k")
	if got := srv.Client(t).HGet(t.Context(), "k", p.e.opts.UUID+":1").Val(); got != "1" {
		t.Fatalf("holds %s", got)
	}
	if again := a.fence("LOCK k"); again != first {
		t.Fatalf("re-entry in doubt: fence %d after %d", again, first)
	}
	b.Lane.Fail(contract.ErrInDoubt)
	b.want("TRYLOCK k", "(nil)")
	b.want("FAIRLOCK k WAIT 2000", "(nil)")
	b.want("TRYLOCK k OWNER other", "(nil)")
	b.send("LOCK k")
	b.quiet(100 * time.Millisecond)
	a.Lane.Fail(nil)
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k", ":1")
	fenceIn(t, b.reply())
	b.want("UNLOCK k", "-INDOUBT sent, but no answer came")
}

func TestReleaseInDoubtIsNoLoss(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(3)
	a.fence("LOCK k")
	a.Lane.Fail(contract.ErrInDoubt)
	a.want("UNLOCK k", "-INDOUBT sent, but no answer came")
	redistest.Eventually(t, patience, "the watchdog to find out", func() bool { return p.e.watchdog.Len() == 0 })
	a.Lane.Fail(nil)
	a.want("UNLOCK k", notHeldWords)
	if p.losses.Load() != 0 || len(a.Pushes) != 0 {
		t.Error("a release counts as a loss")
	}
}

func TestWaitersAreLimited(t *testing.T) {
	srv := redistest.Start(t)
	var refused atomic.Int64
	p := startProxy(t, srv, func(o *Options) {
		o.MaxWaitersPerLock, o.MaxWaiters = 1, 2
		o.Events.Refused = func(string, string) { refused.Add(1) }
	})
	a, b, c := p.session(2), p.session(2), p.session(2)
	a.fence("LOCK k")
	a.fence("LOCK j")
	a.fence("LOCK i")
	b.send("LOCK k")
	b.awaitWaiting()
	c.want("FAIRLOCK k", "-OVERLOADED too many waiters for this lock (max-waiters-per-lock)")
	c.send("LOCK j")
	c.awaitWaiting()
	p.session(2).want("LOCK i", "-OVERLOADED too many waiters (max-waiters)")
	equal(t, "refusals counted", refused.Load(), int64(2))
	p.e.Drain()
	for _, s := range []*session{b, c} {
		equal(t, "waiter in a drain", s.reply(), "-OVERLOADED the proxy is shutting down, connect again")
	}
	equal(t, "refusals counted", refused.Load(), int64(4))
}

func TestWaitersOfEnginesAreLimitedTogether(t *testing.T) {
	srv := redistest.Start(t)
	var waiting atomic.Int64
	limit := func(o *Options) { o.MaxWaiters, o.Waiting = 1, &waiting }
	p, q := startProxy(t, srv, limit), startProxy(t, srv, limit)
	p.session(2).fence("LOCK k")
	w := q.session(2)
	w.send("LOCK k")
	w.awaitWaiting()
	// One whose attempt is on its way counts until its answer, whether or not it has hung up.
	q.awaitAttempt("k")
	p.session(2).want("LOCK k", "-OVERLOADED too many waiters (max-waiters)")
	w.hangUp()
	p.session(2).want("LOCK k WAIT 1", "(nil)")
}
