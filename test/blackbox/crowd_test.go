package blackbox

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxy/metrics"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// balanced is a client whose connections go to one proxy after the other, with the library's own pool.
func balanced(t *testing.T, proxies []*proxytest.Proxy) *redis.Client {
	t.Helper()
	var next atomic.Int64
	c := redis.NewClient(&redis.Options{
		Addr: "balancer:1", ReadTimeout: proxytest.Patience, MaxRetries: -1, PoolTimeout: proxytest.Patience,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled}, // it has a data race
		Dialer: func(ctx context.Context, _, _ string) (net.Conn, error) {
			i := int(next.Add(1)) % len(proxies)
			return new(net.Dialer).DialContext(ctx, "tcp", proxies[i].Addr())
		},
	})
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// proxies starts some in front of one Redis. over checks that nothing was lost, and that nothing is left.
func proxies(t *testing.T, n int) (all []*proxytest.Proxy, over func()) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	server := redistest.Start(t)
	for range n {
		all = append(all, proxytest.Start(t, server, func(o *proxy.Options) { o.Logger, o.Locks.Lease = zap.New(core), 10*time.Second }))
	}
	return all, func() {
		t.Helper()
		for _, p := range all {
			proxytest.WaitFor(t, "no lock to be held", func() bool { return p.Stats().Held == 0 })
			if lost := p.Stats().Lost; metrics.Total(lost) != 0 {
				t.Errorf("lost: %v", lost)
			}
			if list := p.Dial(t).Quiet("LOCKLIST"); list != "*0\r\n" {
				t.Errorf("LOCKLIST: %q", list)
			}
		}
		if n := logs.FilterMessage("lease lost").Len(); n > 0 {
			t.Errorf("%d losses in the log", n)
		}
	}
}

// TestPairsOverTwoProxiesLoseNothing acquires at one proxy and releases at the other.
func TestPairsOverTwoProxiesLoseNothing(t *testing.T) {
	t.Parallel()
	const workers, pairs = 8, 5000
	all, over := proxies(t, 2)
	ways := []*redis.Client{balanced(t, all[:1]), balanced(t, all[1:])}
	var group sync.WaitGroup
	for i := range workers {
		group.Go(func() {
			key, owner := "k"+string(rune('0'+i%4)), "job-"+string(rune('0'+i))
			for n := range pairs / workers {
				from, to := ways[n%2], ways[1-n%2]
				acquire, release := []any{"LOCK", key, "WAIT", 30000}, []any{"UNLOCK", key}
				if n%3 > 0 {
					acquire, release = append(acquire, "OWNER", owner), append(release, "OWNER", owner)
				}
				fence, err := from.Do(t.Context(), acquire...).Int64()
				if err != nil {
					t.Error(err)
					return
				}
				if n%3 != 1 {
					release = append(release, "FENCE", fence)
				}
				if got, err := to.Do(t.Context(), release...).Int64(); err != nil || got != 1 {
					t.Errorf("%v: %d, %v", release, got, err)
				}
			}
		})
	}
	group.Wait()
	over()
}
