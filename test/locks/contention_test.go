package locks

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// Each of these tests uses the default lease of 30 s: what is only found again when a lease runs out is late.

func TestNoWakeUpIsLost(t *testing.T) {
	redis := redistest.Start(t)
	p := []*proxy{startProxy(t, redis.Addr()), startProxy(t, redis.Addr())}
	for _, c := range []struct {
		verb            string
		clients, rounds int
	}{
		{"LOCK", 8, 60},
		{"FAIRLOCK", 8, 60},
		{"LOCK", 2, 1000}, // one client at each proxy: nobody else wakes the one that missed it
		{"FAIRLOCK", 2, 500},
	} {
		verb, rounds := c.verb, c.rounds
		t.Run(fmt.Sprint(c.clients, " times ", verb), func(t *testing.T) {
			var done sync.WaitGroup
			for i := range c.clients {
				c := dial(t, p[i%2].addr, 2)
				done.Go(func() {
					for range rounds {
						v, err := c.conn.do(atOnce, verb, "a")
						if _, ok := v.(int64); !ok || err != nil {
							t.Errorf("%s: %v %v", verb, v, err)
							return
						}
						if v, err := c.conn.do(atOnce, "UNLOCK", "a"); v != int64(1) || err != nil {
							t.Errorf("UNLOCK: %v %v", v, err)
							return
						}
					}
				})
			}
			done.Wait()
		})
	}
}

func TestWaiterThatHangsUpAtTheReleaseLeavesTheLockFree(t *testing.T) {
	redis := redistest.Start(t)
	p := []*proxy{startProxy(t, redis.Addr()), startProxy(t, redis.Addr())}
	a, next := dial(t, p[0].addr, 2), dial(t, p[1].addr, 2)
	for i := range 60 {
		gone := dial(t, p[i%2].addr, 2)
		a.fence("LOCK a WAIT 5000")
		gone.start([]string{"LOCK a GRACE 0", "FAIRLOCK a GRACE 0"}[i/2%2])
		time.Sleep(2 * time.Millisecond) // so that it may wait, or not yet
		a.start("UNLOCK a")
		if i%3 > 0 {
			time.Sleep(time.Duration(i%7) * 50 * time.Microsecond)
		}
		gone.hangUp()
		compare(t, "UNLOCK", a.later(patience), 1)
		if v := next.do("FAIRLOCK a WAIT 5000"); v == nil {
			t.Fatalf("round %d: the lock is not free: %v, queue %v", i, redis.Do(t, "HGETALL", "a"), redis.Do(t, "LRANGE", queueOf("a"), 0, -1))
		}
		next.want("UNLOCK a", 1)
	}
}

// The connection to Redis is cut when Redis has granted the lock. The client gets no reply, and its connection closes.
func TestAnAcquireWithoutAnAnswerClosesAndLeavesNothing(t *testing.T) {
	redis := redistest.Start(t)
	link := redistest.StartRelay(t, redis.Addr())
	p := startProxy(t, link.Addr())
	warm := dial(t, p.addr, 2)
	for _, line := range []string{"LOCK w", "FAIRLOCK w", "UNLOCK w", "UNLOCK w"} {
		warm.do(line) // or Redis would ask for the scripts' text
	}
	for i, options := range []string{"LOCK %s", "FAIRLOCK %s", "TRYLOCK %s PX 20000", "LOCK %s OWNER me", "LOCK %s LIMIT 2", "LOCK %s SHARED"} {
		t.Run(options, func(t *testing.T) {
			key := fmt.Sprintf("a%d", i)
			line := fmt.Sprintf(options, key)
			var c *client
			redistest.Eventually(t, patience, "the proxy to be connected", func() bool {
				c = dial(t, p.addr, 2)
				return c.do("PING") == "PONG"
			})
			link.Hold(redistest.ToClients)
			defer link.Pass()
			c.start(line)
			redistest.Eventually(t, patience, "Redis to grant the lock", func() bool {
				return redis.Do(t, "EXISTS", key) == int64(1)
			})
			link.Reset()
			link.Pass()
			if v, err := c.next(patience); err == nil {
				t.Errorf("%s: reply %v, want the end of the connection", line, v)
			}
			redistest.Eventually(t, 5*time.Second, "the lock to be free, long before its lease ends", func() bool {
				return redis.Do(t, "EXISTS", key) == int64(0)
			})
		})
	}
}
