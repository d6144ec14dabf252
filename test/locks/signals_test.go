package locks

import (
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestSigtermDrainsAndExitsZero(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			redis := redistest.Start(t)
			p := startProxy(t, redis.Addr(), "--drain-timeout", "6s", "--lock-lease", short.String())
			holder, leaver := dial(t, p.addr, 2), dial(t, p.addr, 2)
			plain, fair := dial(t, p.addr, 2), dial(t, p.addr, 3)
			holder.fence("LOCK held")
			leaver.fence("LOCK left")
			plain.start("LOCK held")
			fair.start("FAIRLOCK held")
			fair.silent(50 * time.Millisecond)
			began := time.Now()
			p.Signal(sig)
			compare(t, "LOCK", plain.later(atOnce), "-OVERLOADED")
			compare(t, "FAIRLOCK", fair.later(atOnce), "-OVERLOADED")
			redistest.Eventually(t, atOnce, "new connections to be refused", func() bool {
				c, err := net.Dial("tcp", p.addr)
				if err == nil {
					c.Close()
				}
				return err != nil
			})
			leaver.want("UNLOCK left", 1) // who finishes in time may
			var least int64 = 1 << 62
			watch(t, redis, "held", time.Until(began.Add(5900*time.Millisecond)), func(pttl int64) { least = min(least, pttl) })
			if least < 0 {
				t.Error("the holder lost its lock during the drain")
			}
			holder.wantGone(patience)
			if code := p.Exit(t, patience); code != 0 {
				t.Errorf("exit code %d, want 0", code)
			}
			if took := time.Since(began); took < 5900*time.Millisecond || took > 6*time.Second+atOnce {
				t.Errorf("ended after %v, want the drain timeout of 6s", took)
			}
			if pttl := redis.Do(t, "PTTL", "held").(int64); pttl == -1 || pttl > short.Milliseconds() {
				t.Errorf("PTTL %d after the end, want what is left of the lease", pttl)
			}
			if n := redis.Do(t, "EXISTS", "redisson_lock_queue:{held}", "redisson_lock_timeout:{held}"); n != int64(0) {
				t.Error("the fair waiter is still queued")
			}
		})
	}
}

func TestUpstreamMayAppearAfterTheStart(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Stop()
	p := newProxy(t, redis.Addr(), "--lock-lease", short.String())
	if err := p.start(); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, patience, "the proxy to listen", func() bool {
		c, err := net.Dial("tcp", p.addr)
		if err == nil {
			c.Close()
		}
		return err == nil
	})
	for _, line := range []string{"GET x", "LOCK a", "TRYLOCK a", "FAIRLOCK a WAIT 1000", "UNLOCK a", "LOCKINFO a"} {
		proxytest.Dial(t, p.addr).Loses(line)
	}
	redis.Restart()
	redistest.Eventually(t, patience, "the proxy to find its upstream", func() bool {
		c := proxytest.Dial(t, p.addr)
		c.Send("PING")
		b, _ := c.Frame()
		return b == "+PONG\r\n"
	})
	c := dial(t, p.addr, 2)
	c.do("LOCK a")
	w := dial(t, p.addr, 2)
	w.start("LOCK a")
	w.silent(3 * short / 2)
	c.want("UNLOCK a", 1)
	granted(t, "LOCK a", w.later(atOnce))
}
