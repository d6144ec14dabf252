package locks

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// deafHead is how long a fair lock stays free for a head that does not take it: it is looked at after eight seconds,
// and, if Redis still thinks that it listens, three times more.
const deafHead = 8*time.Second + 3*time.Second

func TestFairHeadWhoseProxyIsCutOffLosesItsTurn(t *testing.T) {
	redis := redistest.Start(t)
	link := redistest.StartRelay(t, redis.Addr())
	p1, p2 := startProxy(t, link.Addr()), startProxy(t, redis.Addr())
	cutOff, holder, next := dial(t, p1.addr, 2), dial(t, p2.addr, 2), dial(t, p2.addr, 2)
	holder.fence("LOCK a")
	queued := func(n int64) func() bool {
		return func() bool { return redis.Do(t, "LLEN", queueOf("a")) == n }
	}
	cutOff.start("FAIRLOCK a")
	redistest.Eventually(t, patience, "the head to listen", func() bool {
		listening, _ := redis.Do(t, "PUBSUB", "CHANNELS", "redisson_lock__channel:{a}:*").([]any)
		return len(listening) == 1
	})
	next.start("FAIRLOCK a")
	redistest.Eventually(t, patience, "two in the queue", queued(2))

	link.Hold(redistest.ToServer)
	link.Hold(redistest.ToClients)
	freed := time.Now()
	holder.want("UNLOCK a", 1)
	first := granted(t, "FAIRLOCK a", next.later(deafHead+patience))
	if took := time.Since(freed); took < 10*time.Second {
		t.Errorf("the head lost its turn after %v: a pause of a second or two must not cost it", took)
	}

	link.Pass()
	redistest.Eventually(t, patience, "the one who was cut off to take a new place", queued(1))
	next.want("UNLOCK a", 1)
	if fence := granted(t, "FAIRLOCK a", cutOff.later(patience)); fence <= first {
		t.Errorf("fence %d after %d", fence, first)
	}
}
