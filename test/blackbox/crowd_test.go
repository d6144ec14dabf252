package blackbox

import (
	"context"
	"errors"
	"math/rand/v2"
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

// crowd is tasks of one program that come at random times and take turns under one lock. There are more of them than
// connections, which a client library hands out as it likes, to proxies in turn.
const crowd = 400

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

// fenceFrom asks for the lock until it is granted.
func fenceFrom(ctx context.Context, t *testing.T, do func(context.Context, ...any) *redis.Cmd) (fence int64) {
	for {
		switch fence, err := do(ctx, "LOCK", "k", "WAIT", 3000).Int64(); {
		case err == nil:
			return fence
		case !errors.Is(err, redis.Nil) || ctx.Err() != nil:
			t.Error(err)
			return 0
		}
	}
}

// TestACrowdTakesTurns is the two ways of docs/CLIENTS.md.
func TestACrowdTakesTurns(t *testing.T) {
	t.Parallel()
	for name, way := range map[string]func(t *testing.T, locks, others *redis.Client) func(ctx context.Context, work func()){
		"handle": func(t *testing.T, locks, others *redis.Client) func(context.Context, func()) {
			return func(ctx context.Context, work func()) {
				fence := fenceFrom(ctx, t, locks.Do)
				work()
				if err := others.Do(ctx, "UNLOCK", "k", "FENCE", fence).Err(); err != nil {
					t.Error(err)
				}
			}
		},
		"connection": func(t *testing.T, locks, _ *redis.Client) func(context.Context, func()) {
			return func(ctx context.Context, work func()) {
				conn := locks.Conn()
				defer conn.Close()
				fenceFrom(ctx, t, conn.Do)
				work()
				if err := conn.Do(ctx, "UNLOCK", "k").Err(); err != nil {
					t.Error(err)
				}
			}
		},
	} {
		for _, n := range []int{1, 2} {
			t.Run(name+[]string{"", ", one proxy", ", two proxies"}[n], func(t *testing.T) {
				t.Parallel()
				all, over := proxies(t, n)
				turn := way(t, balanced(t, all), balanced(t, all))
				ctx, cancel := context.WithTimeout(t.Context(), 4*proxytest.Patience)
				defer cancel()
				var inside, most, done atomic.Int64
				var tasks sync.WaitGroup
				for range crowd {
					tasks.Go(func() {
						time.Sleep(rand.N(300 * time.Millisecond)) // it comes at a random time
						turn(ctx, func() {
							if now := inside.Add(1); now > most.Load() {
								most.Store(now)
							}
							time.Sleep(rand.N(time.Millisecond)) // its work
							inside.Add(-1)
							done.Add(1)
						})
					})
				}
				tasks.Wait()
				if most.Load() != 1 || done.Load() != crowd {
					t.Errorf("%d inside, %d of %d done", most.Load(), done.Load(), crowd)
				}
				over()
			})
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
