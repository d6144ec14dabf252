package locks

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// short is a lease that lets tests outlive it, and that a machine that stands still for two seconds does not end.
const short = 4 * time.Second

func TestUnlockLetsTheWaiterIn(t *testing.T) {
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr())
	a, b := dial(t, p.addr, 2), dial(t, p.addr, 3)
	first := a.fence("LOCK a")
	b.start("LOCK a")
	b.silent(100 * time.Millisecond)
	a.want("UNLOCK a", 1)
	second := granted(t, "LOCK a", b.later(atOnce))
	if second <= first {
		t.Errorf("fence %d after %d", second, first)
	}
}

func TestUnlockAtOneProxyWakesAWaiterAtTheOther(t *testing.T) {
	redis := redistest.Start(t)
	p1, p2 := startProxy(t, redis.Addr()), startProxy(t, redis.Addr())
	for i, way := range ways {
		a, b := dial(t, p1.addr, 2), dial(t, p2.addr, 2)
		key := fmt.Sprint("a", i)
		a.fence("LOCK " + key + " " + strings.Join(way[0], " "))
		line := "LOCK " + key + " " + strings.Join(way[1], " ")
		b.start(line)
		b.silent(100 * time.Millisecond)
		a.want("UNLOCK "+key, 1)
		granted(t, line, b.later(atOnce))
	}
}

func TestAPermitThatIsReleasedIsForTheNext(t *testing.T) {
	redis := redistest.Start(t)
	p1, p2 := startProxy(t, redis.Addr()), startProxy(t, redis.Addr())
	a, b, c := dial(t, p1.addr, 2), dial(t, p1.addr, 2), dial(t, p2.addr, 2)
	first := a.fence("LOCK a LIMIT 2")
	second := b.fence("LOCK a LIMIT 2")
	c.start("LOCK a LIMIT 2")
	c.silent(100 * time.Millisecond)
	a.want("UNLOCK a", 1)
	third := granted(t, "LOCK a LIMIT 2", c.later(atOnce))
	if !(first < second && second < third) {
		t.Errorf("fences %d, %d, %d", first, second, third)
	}
	a.want("TRYLOCK a LIMIT 2", nil)
	a.want("TRYLOCK a", "-WRONGTYPE")
	a.fence("TRYLOCK a LIMIT 3")
}

// Nothing announces the end of a fixed lease. One waiter hears of it, and another, who could share the lock, only that it is not its turn.
func TestALeaseThatEndsLetsTheFirstWaiterIn(t *testing.T) {
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr())
	gone := startProxy(t, redis.Addr())
	a, b, c := dial(t, gone.addr, 2), dial(t, p.addr, 2), dial(t, p.addr, 2)
	const lease = 1500
	a.fence(fmt.Sprintf("LOCK a LIMIT 1 PX %d", lease))
	b.start("FAIRLOCK a LIMIT 1")
	redistest.Eventually(t, patience, "the waiter to be queued", func() bool { return redis.Do(t, "LLEN", queueOf("a")) == int64(1) })
	c.want("LOCK a LIMIT 2 WAIT 100", nil)
	gone.Kill()
	granted(t, "FAIRLOCK a LIMIT 1", b.later(lease*time.Millisecond+atOnce))
}

func TestAHandOverKeepsTheLimitOfTheWaiter(t *testing.T) {
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr())
	a, b, c := dial(t, p.addr, 2), dial(t, p.addr, 2), dial(t, p.addr, 2)
	a.fence("LOCK a LIMIT 2")
	b.fence("LOCK a LIMIT 2")
	c.start("LOCK a LIMIT 1")
	c.silent(100 * time.Millisecond)
	a.want("UNLOCK a", 1)
	c.silent(100 * time.Millisecond)
	b.want("UNLOCK a", 1)
	granted(t, "LOCK a LIMIT 1", c.later(atOnce))
}

// WAIT covers the commands that its own connection has sent. The replica has the commands of all connections when it stops, so only a WAIT behind the
// grant, on the same connection, finds that the grant is missing.
func TestAGrantThatNoReplicaHasIsRefused(t *testing.T) {
	redis := redistest.Start(t)
	replica := redistest.StartReplica(t, redis)
	p := startProxy(t, redis.Addr())
	a := dial(t, p.addr, 2)
	for range 5 { // a WAIT on a connection that is opened behind the grant would cover it
		a.fence("LOCK a SYNC 1")
		a.want("UNLOCK a", 1)
	}
	redis.AwaitReplicas(t, 1)
	replica.Pause()
	a.want("TRYLOCK b SYNC 1", "-NOTSYNCED")
	if n := redis.Do(t, "EXISTS", "b"); n != int64(0) {
		t.Errorf("the refused lock is there: EXISTS %v", n)
	}
}

func TestStrangerCannotUnlock(t *testing.T) {
	redis := redistest.Start(t)
	p := startProxy(t, redis.Addr())
	a, b := dial(t, p.addr, 2), dial(t, p.addr, 2)
	a.fence("LOCK a")
	b.want("UNLOCK a", "-NOTHELD")
	b.want("UNLOCK free", "-NOTHELD")
	b.want("EXTENDLOCK a PX 5000", "-NOTHELD")
	b.want("TRYLOCK a", nil)
	a.want("UNLOCK a", 1)
	a.want("UNLOCK a", "-NOTHELD")
}

func TestFairLockIsGrantedInOrderOfAsking(t *testing.T) {
	redis := redistest.Start(t)
	p := []*proxy{startProxy(t, redis.Addr()), startProxy(t, redis.Addr())}
	for key, kinds := range map[string][]string{"lock": {""}, "limit": {" LIMIT 1"}, "mixed": {"", " SHARED"}} {
		holder := dial(t, p[0].addr, 2)
		holder.fence("LOCK " + key + kinds[0])
		var waiters []*client
		for i := range int64(5) {
			c := dial(t, p[i%2].addr, 2)
			c.start("FAIRLOCK " + key + kinds[i%int64(len(kinds))])
			redistest.Eventually(t, patience, "the waiter to be queued", func() bool { return redis.Do(t, "LLEN", queueOf(key)) == i+1 })
			waiters = append(waiters, c)
		}
		holder.want("UNLOCK "+key, 1)
		var last int64
		for i, c := range waiters {
			fence := granted(t, "FAIRLOCK", c.later(atOnce))
			if fence <= last {
				t.Errorf("%s: fence %d after %d", key, fence, last)
			}
			last = fence
			for _, behind := range waiters[i+1:] {
				behind.silent(10 * time.Millisecond)
			}
			c.want("UNLOCK "+key, 1)
		}
	}
}
