package lockcmds

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// empty checks that nothing of a lock is left in Redis but the fence counter.
func empty(t *testing.T, srv *redistest.Server) {
	t.Helper()
	redistest.Eventually(t, patience, "nothing to be left", func() bool {
		keys, err := srv.Client(t).Keys(t.Context(), "*").Result()
		return err == nil && len(keys) == 1 && keys[0] == "lockproxy:fence"
	})
}

func TestSharedHoldersShareALockAndNoExclusiveHolder(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a, b := startProxy(t, srv, nil).session(2), startProxy(t, srv, nil).session(2)
	c := a.p.session(2)
	first, second := a.fence("LOCK k SHARED"), b.fence("TRYLOCK k SHARED")
	if second <= first {
		t.Errorf("fence %d after %d", second, first)
	}
	c.want("TRYLOCK k", "(nil)")
	c.want("FAIRLOCK k WAIT 1", "(nil)")
	if again := a.fence("LOCK k SHARED"); again != first {
		t.Errorf("re-entry: fence %d after %d", again, first)
	}
	a.want("UNLOCK k", ":0")
	a.want("UNLOCK k SHARED", ":1")
	a.want("UNLOCK k", notHeldWords)
	c.want("TRYLOCK k", "(nil)")
	b.want("UNLOCK k", ":1")
	last := c.fence("LOCK k")
	if last <= second {
		t.Errorf("fence %d after %d", last, second)
	}
	for _, line := range []string{"TRYLOCK k SHARED", "FAIRLOCK k SHARED WAIT 1", "LOCK k SHARED WAIT 1"} {
		a.want(line, "(nil)")
	}
	c.want("UNLOCK k", ":1")
	empty(t, srv)
}

// While one shared holder after the other comes and goes, a client that wants the lock for itself gets it, and those
// that have come behind it get it next.
func TestSharedHoldersDoNotStarveAnExclusiveWaiter(t *testing.T) {
	t.Parallel()
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		p, q := twoProxies(t, nil)
		first, writer := p.session(2), p.session(2)
		first.fence("LOCK k SHARED")
		writer.waits(verb + " k")
		awaitPlaces(t, p.srv, 1)
		later := []*session{q.session(2), p.session(2), q.session(2)}
		later[0].want("TRYLOCK k SHARED", "(nil)")
		for _, s := range later {
			s.waits(verb + " k SHARED")
		}
		first.fence("LOCK k SHARED") // it goes ahead: it holds the lock
		first.want("UNLOCK k", ":0")
		first.want("UNLOCK k", ":1")
		fenceIn(t, writer.reply())
		for _, s := range later {
			s.quiet(20 * time.Millisecond)
		}
		writer.want("UNLOCK k", ":1")
		for _, s := range later {
			fenceIn(t, s.reply())
		}
		for _, s := range later {
			s.want("UNLOCK k", ":1")
		}
		empty(t, p.srv)
	}
}

// Code that reads may be called by code that writes: SHARED of the exclusive holder is a re-entry, through any proxy.
func TestASharedAcquireOfTheExclusiveHolderIsAReentry(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	b := p.session(2)
	for _, owner := range []string{"", " OWNER o"} {
		for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK"} {
			a := p.session(2)
			others := []*session{a}
			if owner != "" {
				others = []*session{a, p.session(2), q.session(2)}
			}
			fence := a.fence(verb + " k" + owner)
			for _, again := range others {
				if got := again.fence(verb + " k SHARED" + owner); got != fence {
					t.Errorf("%s: fence %d after %d", owner, got, fence)
				}
				b.want("TRYLOCK k SHARED", "(nil)")
				again.want("EXTENDLOCK k PX 20000 SHARED"+owner, ":1")
				again.want("UNLOCK k SHARED"+owner, ":0")
			}
			if mode := p.srv.Client(t).HGet(t.Context(), "k", "mode").Val(); mode != "lock" {
				t.Errorf("mode %s", mode)
			}
			b.waits("LOCK k SHARED")
			a.want("UNLOCK k"+owner, ":1")
			fenceIn(t, b.reply())
			b.want("UNLOCK k", ":1")
			empty(t, p.srv)
		}
	}
}

// A holder that shares the lock and wants it for itself would wait for itself, and two of them for each other.
func TestAnExclusiveAcquireOfASharedHolderIsRefused(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	deadlock := "-" + errHoldsShared.Error()
	for _, owner := range []string{"", " OWNER o"} {
		a, b := p.session(2), q.session(2)
		others := []*session{a}
		if owner != "" {
			others = []*session{a, p.session(2), q.session(2)}
		}
		fence := a.fence("LOCK k SHARED" + owner)
		for _, again := range others {
			for _, beside := range []bool{false, true} {
				if beside {
					b.fence("LOCK k SHARED")
				}
				again.want("LOCK k"+owner, deadlock)
				again.want("FAIRLOCK k WAIT 60000"+owner, deadlock)
				again.want("TRYLOCK k"+owner, "(nil)")
				again.want("TRYLOCK k WAIT 60000"+owner, "(nil)")
				if got := again.fence("LOCK k SHARED" + owner); got != fence {
					t.Errorf("fence %d after %d", got, fence)
				}
				again.want("UNLOCK k"+owner, ":0")
				if beside {
					b.want("UNLOCK k", ":1")
				}
			}
		}
		for _, s := range []*session{a, b} {
			s.send("UNLOCK k SHARED" + owner) // pipelined
			s.send("LOCK k" + owner)
			s.reply()
			fenceIn(t, s.reply())
			s.want("UNLOCK k"+owner, ":1")
		}
		empty(t, p.srv)
	}
}

// Two connections of a named owner wait, one of them exclusively. If the sharer is first, the other one is refused, else
// the sharer re-enters.
func TestWaitersOfOneOwnerInBothModes(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		for _, there := range []*proxy{p, q} {
			holder, shares, alone := p.session(2), there.session(2), p.session(2)
			holder.fence("LOCK k")
			shares.waits("LOCK k SHARED OWNER o")
			alone.waits(verb + " k OWNER o")
			holder.want("UNLOCK k", ":1")
			fence := fenceIn(t, shares.reply())
			if got := alone.reply(); got == ":"+itoa(fence) {
				alone.want("UNLOCK k OWNER o", ":0")
			} else {
				equal(t, verb, got, "-"+errHoldsShared.Error())
			}
			shares.want("UNLOCK k OWNER o", ":1")
			empty(t, p.srv)
		}
	}
}

// Redisson's threads may share a lock that they hold for themselves. Such a hash is nobody's of ours.
func TestAWriterOfRedissonsThatReadsToo(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a := p.session(2)
	r := newRedisson(t, p.srv, 1, "k")
	r.writeAcquire()
	if got := r.readAcquire(); got != nil {
		t.Fatalf("a writer may not read: %v", got)
	}
	before := p.srv.Client(t).HGetAll(t.Context(), "k").Val()
	for _, owner := range []string{"", " OWNER " + r.owner} {
		for _, line := range []string{"TRYLOCK k", "TRYLOCK k SHARED", "FAIRLOCK k WAIT 1", "FAIRLOCK k SHARED WAIT 1"} {
			a.want(line+owner, "(nil)")
		}
	}
	a.want("UNLOCK k OWNER "+r.owner, notOwnerReply)
	if info := a.do("LOCKINFO k"); !strings.Contains(info, r.owner) {
		t.Errorf("LOCKINFO: %s", info)
	}
	if diff := cmp.Diff(before, p.srv.Client(t).HGetAll(t.Context(), "k").Val()); diff != "" {
		t.Errorf("the hash is changed (-before +after):\n%s", diff)
	}
	a.waits("LOCK k")
	r.writeRelease()
	a.quiet(50 * time.Millisecond)
	r.readRelease()
	fenceIn(t, a.reply())
	a.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

// The latest acquire or extension of an owner sets its lease, also to a shorter one. It is so in Redis: if the proxy ends, the
// lock ends with the lease that the client has asked for.
func TestASharedLeaseCanBecomeShorter(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	for _, line := range []string{"EXTENDLOCK k PX 300 SHARED", "LOCK k SHARED PX 300"} {
		for _, owner := range []string{"", " OWNER o"} {
			for _, crowd := range []int{0, 1, 30} {
				p := startProxy(t, srv, nil)
				a, b, c := p.session(2), p.session(2), startProxy(t, srv, nil).session(2)
				for i := range crowd {
					b.fence(fmt.Sprintf("LOCK k SHARED PX 500 OWNER %d", i))
				}
				a.fence("LOCK k SHARED PX 60000" + owner)
				c.waits("LOCK k")
				equal(t, line, a.do(line + owner)[:1], ":")
				if left := srv.Client(t).PTTL(t.Context(), "k").Val(); left > 510*time.Millisecond {
					t.Errorf("%s with %d others: the lock lasts %v longer", line, crowd, left)
				}
				fenceIn(t, c.reply())
				c.want("UNLOCK k", ":1")
			}
		}
	}
}

// The lease of each holder is its own: one that has gone does not live on by the renewals of others.
func TestTheWatchdogRenewsEachSharedHolder(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	p := startProxy(t, srv, func(o *Options) { o.Lease = 3 * time.Second })
	a, b, c := p.session(2), p.session(3), p.session(2)
	a.fence("LOCK k SHARED")
	fence := itoa(b.fence("LOCK k SHARED PX 1200"))
	equal(t, "push", b.push(), ">[lock-lost k :"+fence+" expired]")
	b.want("UNLOCK k", lostLeaseWords)
	c.waits("LOCK k")
	for range 4 { // longer than a lease
		p.awaitRenewal("k")
	}
	c.quiet(0)
	a.want("UNLOCK k", ":1")
	fenceIn(t, c.reply())
	c.want("UNLOCK k", ":1")
	empty(t, srv)
}

func TestForceUnlockEndsAllSharedHoldsOrThoseOfOneOwner(t *testing.T) {
	t.Parallel()
	p, q := twoProxies(t, nil)
	a, b, c, d := p.session(3), q.session(3), q.session(3), p.session(2)
	first, second, third := itoa(a.fence("LOCK k SHARED")), itoa(b.fence("LOCK k SHARED OWNER x")), itoa(c.fence("LOCK k SHARED"))
	d.want("FORCEUNLOCK k OWNER x", ":1")
	equal(t, "push", b.push(), ">[lock-lost k :"+second+" forced]")
	d.want("FORCEUNLOCK k OWNER x", ":0")
	d.want("TRYLOCK k", "(nil)")
	d.want("FORCEUNLOCK k", ":1")
	equal(t, "push", a.push(), ">[lock-lost k :"+first+" forced]")
	equal(t, "push", c.push(), ">[lock-lost k :"+third+" forced]")
	d.fence("TRYLOCK k")
	d.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

func TestInfoAndListTellTheModes(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b, c := p.session(2), p.session(2), p.session(3)
	first := itoa(a.fence("LOCK k SHARED"))
	second := itoa(b.fence("LOCK k SHARED OWNER x"))
	info := c.do("LOCKINFO k")
	for _, want := range []string{
		" fence :" + first + " fair", " client 10.0.0.1:1 ", " mode shared holders *[%[", "fence :" + first + " client", "%[owner x holds :1 ttl-ms :", "fence :" + second + " client",
	} {
		if !strings.Contains(info, want) {
			t.Errorf("LOCKINFO: %s, want %s", info, want)
		}
	}
	list := c.do("LOCKLIST")
	if strings.Count(list, "key k") != 2 || strings.Count(list, "mode shared") != 2 {
		t.Errorf("LOCKLIST: %s", list)
	}
	a.want("UNLOCK k", ":1")
	b.want("UNLOCK k OWNER x", ":1")
	exclusive := itoa(a.fence("LOCK k"))
	a.fence("LOCK k SHARED")
	if info := c.do("LOCKINFO k"); !strings.Contains(info, " holds :2 ") || !strings.Contains(info, " fence :"+exclusive+" fair") ||
		!strings.Contains(info, "mode exclusive") {
		t.Errorf("LOCKINFO of a lock that is held again: %s", info)
	}
}

func TestRedissonsReadersShareTheLockWithOurs(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(2)
	r := newRedisson(t, p.srv, 1, "k")
	a.fence("LOCK k SHARED")
	for range 2 {
		if got := r.readAcquire(); got != nil {
			t.Fatalf("a reader of Redisson's waits for a shared holder: %v", got)
		}
	}
	if got := r.writeAcquire(); got == nil {
		t.Fatal("a writer of Redisson's was granted a lock that is held shared")
	}
	if got := newRedisson(t, p.srv, 2, "k").acquire(); got == nil {
		t.Fatal("an RLock was granted a lock that is held shared")
	}
	b.want("TRYLOCK k", "(nil)")
	a.want("TRYLOCK k", "(nil)") // it is not the only holder
	r.readRelease()
	b.waits("LOCK k")
	a.want("UNLOCK k", ":1")
	b.quiet(50 * time.Millisecond)
	r.readRelease() // tells of it on a channel of its own
	fenceIn(t, b.reply())
	b.want("UNLOCK k", ":1")

	r.readAcquire()
	a.fence("LOCK k SHARED")
	r.readRelease()
	b.want("TRYLOCK k", "(nil)")
	a.want("UNLOCK k", ":1")
	r.writeAcquire()
	b.waits("LOCK k SHARED")
	r.writeRelease()
	fenceIn(t, b.reply())
	b.want("UNLOCK k", ":1")
	empty(t, p.srv)
}

// Redisson's clients sleep until a message on their own channel.
func TestRedissonsReadersAndWritersAreToldOfOurReleases(t *testing.T) {
	t.Parallel()
	srv := redistest.Start(t)
	a := startProxy(t, srv, nil).session(2)
	sub := subscribed(t, srv.Client(t), "redisson_rwlock:{k}")
	for _, line := range []string{"LOCK k", "LOCK k SHARED"} {
		a.fence(line)
		a.want("UNLOCK k", ":1")
		for _, want := range []string{"1", "0"} {
			equal(t, line, nextMessage(t, sub), want)
		}
	}
	srv.Do(t, "ACL", "SETUSER", "default", "resetchannels", "&redisson_lock__channel:*")
	a.fence("LOCK k")
	a.want("UNLOCK k", ":1") // the right is not needed
	empty(t, srv)
}
