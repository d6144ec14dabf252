package locks

import (
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// watch asks for the key's time to live until d has passed, and calls see with each answer.
func watch(t *testing.T, redis *redistest.Server, key string, d time.Duration, see func(pttl int64)) {
	t.Helper()
	c := redis.Client(t)
	probe := time.NewTicker(5 * time.Millisecond)
	defer probe.Stop()
	for end := time.Now().Add(d); time.Now().Before(end); <-probe.C {
		pttl, err := c.Do(t.Context(), "PTTL", key).Int64()
		if err != nil {
			t.Fatal(err)
		}
		see(pttl)
	}
}

// watchUnrenewed demands that a fixed lease of px, which was asked for at sent, only gets shorter. It may end meanwhile.
func watchUnrenewed(t *testing.T, redis *redistest.Server, key string, d time.Duration, sent time.Time, px time.Duration) {
	t.Helper()
	last := px.Milliseconds() + 1
	watch(t, redis, key, d, func(pttl int64) {
		over := pttl == -2 && time.Since(sent) >= px
		if !over && (pttl > last || pttl < 0) {
			t.Fatalf("PTTL %d after %d of a lease that nobody renews", pttl, last)
		}
		last = pttl
	})
}

func TestWatchdogKeepsALockForManyLeases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	for key, kind := range map[string]string{"lock": "", "shared": " SHARED", "limit": " LIMIT 1"} {
		t.Run(key, func(t *testing.T) {
			t.Parallel()
			a, b := dial(t, p.addr, 2), dial(t, p.addr, 2)
			a.fence("LOCK " + key + kind)
			a.fence("LOCK b" + key + kind)
			a.want("UNLOCK b"+key, 1)
			alone := key + strings.ReplaceAll(kind, " SHARED", "")
			b.start(fmt.Sprintf("TRYLOCK %s WAIT %d", alone, (3 * short).Milliseconds()))
			watch(t, redis, key, 3*short, func(pttl int64) {
				if pttl < 0 || pttl > short.Milliseconds() {
					t.Fatalf("PTTL %d while the lock is held, want up to %v", pttl, short)
				}
			})
			compare(t, "TRYLOCK", b.later(patience), nil)
			a.want("UNLOCK "+key, 1)
			b.fence("TRYLOCK " + alone)
		})
	}
}

func TestKilledClientIsNotRenewed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	h := startHolder(t, p.addr, "LOCK a")
	w := dial(t, p.addr, 2)
	w.start("LOCK a")
	w.silent(2 * short)
	h.Kill()
	killed := time.Now()
	last := int64(1 << 62)
	settled := killed.Add(100 * time.Millisecond) // by then a renewal on its way has arrived
	for {
		pttl := redis.Do(t, "PTTL", "a").(int64)
		if time.Now().After(settled) {
			if pttl > last {
				break // the waiter's lease: fresh
			}
			last = pttl
		}
		if time.Since(killed) > short+atOnce {
			t.Fatalf("the lock is still there %v after its client was killed (lease %v)", time.Since(killed), short)
		}
	}
	granted(t, "LOCK a", w.later(atOnce))
	if took := time.Since(killed); took > short+atOnce {
		t.Errorf("the next waiter got the lock after %v, want within the lease of %v", took, short)
	}
}

func TestKilledClientWithGraceZeroFreesTheLockAtOnce(t *testing.T) {
	redis := redistest.Start(t)
	for name, flags := range map[string][]string{
		"option":        nil,
		"configuration": {"--lock-grace", "0s"},
	} {
		t.Run(name, func(t *testing.T) {
			p := startProxy(t, redis.Addr(), flags...)
			line := "LOCK " + name
			if flags == nil {
				line += " GRACE 0"
			}
			h := startHolder(t, p.addr, line)
			w := dial(t, p.addr, 2)
			w.start("LOCK " + name)
			w.silent(50 * time.Millisecond)
			h.Kill()
			granted(t, line, w.later(atOnce))
		})
	}
}

func TestKilledWaiterDelaysNobody(t *testing.T) {
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		t.Run(verb, func(t *testing.T) {
			redis := redistest.Start(t)
			p := startProxy(t, redis.Addr())
			a, b := dial(t, p.addr, 2), dial(t, p.addr, 2)
			a.fence("LOCK a")
			dead := startWaiter(t, p.addr, verb+" a")
			info := dial(t, p.addr, 2)
			waiting := func(n int) func() bool {
				return func() bool {
					fields, _ := info.do("LOCKINFO a").([]any)
					return fieldsOf(fields)["local-waiters"] == fmt.Sprint(n)
				}
			}
			redistest.Eventually(t, patience, "the first waiter to wait", waiting(1))
			b.start(verb + " a")
			redistest.Eventually(t, patience, "the second waiter to wait", waiting(2))
			dead.Kill()
			redistest.Eventually(t, patience, "the killed waiter to be taken out", waiting(1))
			a.want("UNLOCK a", 1)
			granted(t, verb+" a", b.later(atOnce))
			redistest.Eventually(t, patience, "an empty fair queue", func() bool {
				return redis.Do(t, "EXISTS", "redisson_lock_queue:{a}", "redisson_lock_timeout:{a}") == int64(0)
			})
		})
	}
}

func TestKilledProxyLeavesKeysThatExpire(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p1 := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	p2 := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	a, b, c := dial(t, p1.addr, 2), dial(t, p2.addr, 2), dial(t, p1.addr, 2)
	a.fence("LOCK a")
	c.start("FAIRLOCK a")
	c.silent(50 * time.Millisecond)
	b.start("LOCK a")
	b.silent(2 * short)
	if pttl := redis.Do(t, "PTTL", "a").(int64); pttl < 0 {
		t.Fatalf("PTTL %d of a held lock", pttl)
	}
	p1.Kill()
	killed := time.Now()
	granted(t, "LOCK a", b.later(short+atOnce))
	if took := time.Since(killed); took > short+atOnce {
		t.Errorf("the lock of a killed proxy was free after %v", took)
	}
	a.wantGone(patience)
	c.wantGone(patience)
	if err := p1.start(); err != nil {
		t.Fatal(err)
	}
	p1.awaitPong(t)
	b.want("UNLOCK a", 1)
	dial(t, p1.addr, 2).fence("LOCK a WAIT 10000")
}

func TestLockThatWasTakenAwayIsNotRenewed(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p1 := startProxy(t, redis.Addr(), "--lock-lease", "6s")
	p2 := startProxy(t, redis.Addr())
	b := dial(t, p2.addr, 2)
	const px = 4 * time.Second // less than what a renewal would make of it
	for command, one := range map[string]struct {
		answer any
		reason string
	}{
		"FORCEUNLOCK a": {1, "forced"},
		"DEL a":         {1, "gone"},
		"FLUSHALL":      {"OK", "gone"},
	} {
		t.Run(command, func(t *testing.T) {
			a := dial(t, p1.addr, 3)
			fence := a.fence("LOCK a")
			b.want(command, one.answer)
			sent := time.Now()
			b.fence(fmt.Sprintf("TRYLOCK a PX %d", px.Milliseconds()))
			// The next renewal is due within a third of the lease.
			watchUnrenewed(t, redis, "a", 2300*time.Millisecond, sent, px)
			push, err := a.nextPush(patience)
			if got, want := fmt.Sprint(push), fmt.Sprintf("[lock-lost a %d %s]", fence, one.reason); err != nil || got != want {
				t.Errorf("push %s %v, want %s", got, err, want)
			}
			a.want("UNLOCK a", "-LOSTLEASE")
			if v := b.do("UNLOCK a"); time.Since(sent) < px || v == int64(1) {
				compare(t, "UNLOCK a", v, 1)
			} else {
				compare(t, "UNLOCK a", v, "-LOSTLEASE")
			}
		})
	}
}

func TestStoppedProxyResurrectsNoLock(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	p1 := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	p2 := startProxy(t, redis.Addr(), "--lock-lease", short.String())
	a, b := dial(t, p1.addr, 3), dial(t, p2.addr, 2)
	fence := a.fence("LOCK a")
	p1.Signal(syscall.SIGSTOP)
	b.fence("LOCK a")
	b.want("UNLOCK a", 1)
	const px = 1500 * time.Millisecond // less than what a renewal would make of it
	sent := time.Now()
	b.fence(fmt.Sprintf("LOCK a PX %d", px.Milliseconds()))
	b.start("PING") // the lock is as long as it is: nobody renews it
	p1.Signal(syscall.SIGCONT)
	push, err := a.nextPush(patience)
	if err != nil {
		t.Fatal(err)
	}
	if len(push) != 4 || push[0] != "lock-lost" || push[1] != "a" || push[2] != fence {
		t.Errorf("push %v, want lock-lost a %d", push, fence)
	}
	a.want("UNLOCK a", "-LOSTLEASE")
	watchUnrenewed(t, redis, "a", 500*time.Millisecond, sent, px)
}
