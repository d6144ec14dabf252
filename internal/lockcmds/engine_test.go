package lockcmds

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/lockcmds/contract"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

const (
	notHeldWords   = "-NOTHELD this connection does not hold the lock (is it pooled, shared, or new after a reconnect? name the FENCE of the grant, or an OWNER)"
	notOwnerReply  = "-NOTHELD this OWNER does not hold the lock"
	otherFence     = "-NOTHELD the lock is not held with this fence"
	lostLeaseWords = "-LOSTLEASE the lock was lost before this command: its lease ended, or it was taken away"
)

func TestUnlockOfALeaseThatEndedSaysSo(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	a := p.session(3)
	a.fence("LOCK k")
	p.srv.Do(t, "DEL", "k")
	a.want("UNLOCK k", lostLeaseWords) // before the watchdog has noticed
	a.want("UNLOCK k", notHeldWords)
	fence := itoa(a.fence("LOCK k PX 1500"))
	equal(t, "push", a.push(), ">[lock-lost k :"+fence+" expired]")
	a.want("EXTENDLOCK k PX 1000", lostLeaseWords)
	redistest.Eventually(t, patience, "the key to go", func() bool { return p.srv.Client(t).Exists(t.Context(), "k").Val() == 0 })
	a.want("EXTENDLOCK k PX 1000", notHeldWords)
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

func TestInfoAndListShowWhatIsHeld(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a, b := p.session(2), p.session(3)
	a.want("LOCKINFO k", "(nil)")
	b.want("LOCKINFO k", "(nil)")
	a.want("LOCKLIST", "*[]")
	fence := itoa(a.fence("LOCK k PX 60000 OWNER me"))
	a.fence("LOCK other")
	w := p.session(2)
	w.waits("FAIRLOCK k")
	head := "[owner me holds :1 ttl-ms :"
	tail := " fence :" + fence + " fair-waiters :1 local-waiters :1 client 10.0.0.1:1 name test held-ms :"
	for s, kind := range map[*session]string{a: "*", b: "%"} {
		if got := s.do("LOCKINFO k"); !strings.HasPrefix(got, kind+head) || !strings.Contains(got, tail) {
			t.Errorf("LOCKINFO: %s", got)
		}
	}
	got := b.do("LOCKLIST MATCH k*")
	if !strings.HasPrefix(got, "*[%[key k owner me holds :1 ttl-ms :") ||
		!strings.Contains(got, tail) {
		t.Errorf("LOCKLIST: %s", got)
	}
	if got := b.do("LOCKLIST"); strings.Count(got, "key ") != 2 {
		t.Errorf("LOCKLIST: %s", got)
	}
	if got := b.do("LOCKLIST COUNT 1"); strings.Count(got, "key ") != 1 {
		t.Errorf("LOCKLIST COUNT 1: %s", got)
	}
}

// A fence is the time of its grant, by Redis's clock. A grant of Redisson has none, and a clock may jump back.
func TestHowLongALockIsHeld(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	held := func(command string) time.Duration {
		t.Helper()
		_, ms, known := strings.Cut(a.do(command), "held-ms :")
		if !known {
			return -1
		}
		ms, _, _ = strings.Cut(ms, " ")
		n, err := strconv.Atoi(ms)
		if err != nil {
			t.Fatal(err)
		}
		return time.Duration(n) * time.Millisecond
	}
	fence := a.fence("LOCK k")
	for _, command := range []string{"LOCKINFO k", "LOCKLIST"} {
		if got := held(command); got < 0 || got > time.Minute {
			t.Errorf("%s: held for %v", command, got)
		}
	}
	srv.Do(t, "HSET", "k", "fence", itoa(fence-time.Hour.Microseconds()))
	if got := held("LOCKINFO k"); got < time.Hour || got > time.Hour+time.Minute {
		t.Errorf("held for %v, want an hour", got)
	}
	srv.Do(t, "HSET", "k", "fence", itoa(fence+time.Hour.Microseconds()))
	srv.Do(t, "HSET", "redisson", "00000000-0000-4000-8000-000000000001:1", "1")
	for _, command := range []string{"LOCKINFO k", "LOCKINFO redisson"} {
		if got := held(command); got != -1 {
			t.Errorf("%s: held for %v, which is not known", command, got)
		}
	}
	// Such a user has the rights of earlier versions.
	srv.Do(t, "ACL", "SETUSER", "default", "-time")
	for _, command := range []string{"LOCKINFO k", "LOCKLIST"} {
		if got := a.do(command); !strings.Contains(got, "owner") || strings.Contains(got, "held-ms") {
			t.Errorf("%s: %s", command, got)
		}
	}
}

func TestWrongTypeIsRedissOwnError(t *testing.T) {
	srv := redistest.Start(t)
	p := startProxy(t, srv, nil)
	a := p.session(2)
	srv.Do(t, "SET", "text", "x")
	srv.Do(t, "HSET", "record", "name", "bob", "visits", "3") // a hash as a lock is, but with data
	srv.Do(t, "HSET", "expiring", "visits", "3", "logins", "1")
	srv.Do(t, "PEXPIRE", "expiring", "600000")
	srv.Do(t, "HSET", "mode", "mode", "dark", "visits", "3")
	srv.Do(t, "HSET", "read", "mode", "read", "visits", "3") // as a read lock, but without a TTL
	srv.Do(t, "HSET", "write", "mode", "write", "visits", "3")
	srv.Do(t, "HSET", "fenced", "name", "bob", "visits", "3", "fence", "3")
	srv.Do(t, "HSET", "price", "visits", "5.25")
	for _, key := range []string{"text", "record", "expiring", "mode", "read", "write", "fenced", "price"} {
		was := srv.Do(t, "DUMP", key)
		for _, line := range []string{
			"LOCK k", "TRYLOCK k", "FAIRLOCK k", "UNLOCK k", "EXTENDLOCK k PX 1", "LOCKINFO k", "FORCEUNLOCK k",
			"LOCK k SHARED", "TRYLOCK k SHARED", "FAIRLOCK k SHARED", "UNLOCK k SHARED", "LOCK k LIMIT 2", "TRYLOCK k LIMIT 2", "FAIRLOCK k LIMIT 2",
			"TRYLOCK k OWNER visits", "UNLOCK k OWNER visits", "UNLOCK k SHARED OWNER visits", "EXTENDLOCK k PX 1000 OWNER visits",
			"FORCEUNLOCK k OWNER visits", "UNLOCK k FENCE 3",
		} {
			a.want(strings.Replace(line, " k", " "+key, 1), "-WRONGTYPE Operation against a key holding the wrong kind of value")
		}
		equal(t, key, srv.Do(t, "DUMP", key), was)
	}
	b := p.session(2)
	a.fence("LOCK j")
	b.waits("LOCK j")
	srv.Do(t, "SET", "j", "x")
	srv.Do(t, "PUBLISH", "redisson_lock__channel:{j}", "0")
	equal(t, "waiter", b.reply(), "-WRONGTYPE Operation against a key holding the wrong kind of value")
}

// Scripts are sent by their hash, on the lanes of sessions as on the connections of an engine.
func TestScriptFlushIsNotNoticed(t *testing.T) {
	srv := redistest.Start(t)
	holder, waiter := startProxy(t, srv, leaseOfAMinute).session(2), startProxy(t, srv, leaseOfAMinute).session(2)
	holder.fence("LOCK k")
	for range 3 {
		waiter.waits("LOCK k")
		srv.Do(t, "SCRIPT", "FLUSH")
		holder.want("UNLOCK k", ":1")
		fenceIn(t, waiter.reply())
		holder, waiter = waiter, holder
	}
}

func TestUnsentCommandsSaySo(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	a := p.session(2)
	a.fence("LOCK k")
	a.Lane.Fail(contract.ErrUnsent)
	for _, line := range []string{"LOCK k", "LOCK j", "FAIRLOCK j", "UNLOCK k", "EXTENDLOCK k PX 5", "LOCKINFO k", "FORCEUNLOCK k"} {
		a.want(line, "unreachable")
	}
	a.Lane.Fail(nil)
	a.want("UNLOCK k", ":1")
}

func TestAReleaseWithoutAnAnswerIsNoLoss(t *testing.T) {
	t.Parallel()
	p := startProxy(t, redistest.Start(t), nil)
	a := p.session(3)
	a.fence("LOCK k")
	a.Lane.Fail(contract.ErrInDoubt)
	a.want("UNLOCK k", "closed")
	p.cleanedUp()
	if p.losses.Load() != 0 || len(a.Pushes) != 0 {
		t.Error("a release counts as a loss")
	}
}

// Another session of its owner has.
func TestASessionThatHeldNothingHasLostNothing(t *testing.T) {
	p := startProxy(t, redistest.Start(t), leaseOfAMinute)
	for _, command := range []string{"UNLOCK k OWNER me", "EXTENDLOCK k PX 9000 OWNER me"} {
		a, c := p.session(2), p.session(2)
		a.fence("LOCK k OWNER me")
		p.srv.Do(t, "DEL", "k")
		if reply := c.do(command); !strings.HasPrefix(reply, "-NOTHELD") {
			t.Errorf("%s: %s", command, reply)
		}
		if reply := a.do("UNLOCK k OWNER me"); !strings.HasPrefix(reply, "-LOSTLEASE") {
			t.Errorf("the session that held the lock: %s", reply)
		}
	}
}

func TestExtensionNeedsNoMemory(t *testing.T) {
	p := startProxy(t, redistest.Start(t), nil)
	redis := p.srv.Client(t)
	a := p.session(2)
	for _, owner := range []string{"", " OWNER me"} {
		a.fence("LOCK k PX 60000" + owner)
		redis.ConfigSet(t.Context(), "maxmemory", "1")
		a.want("EXTENDLOCK k PX 60000"+owner, ":1")
		redis.ConfigSet(t.Context(), "maxmemory", "0")
		a.want("UNLOCK k"+owner, ":1")
	}
}
