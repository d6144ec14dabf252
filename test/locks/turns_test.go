package locks

import (
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A release wakes one waiter, however many proxies wait: a hand-over over many proxies costs Redis as many commands,
// those of scripts included, as one over a few.
func TestAHandOverCostsTheSameOverManyProxies(t *testing.T) {
	for _, verb := range []string{"LOCK", "FAIRLOCK"} {
		few, many := 0.0, 0.0
		for range 3 { // on a busy machine, what is done from time to time counts for more
			few, many = handOverCost(t, verb, 8), handOverCost(t, verb, 60)
			t.Logf("%s: %.1f commands for a hand-over over 8 proxies, %.1f over 60", verb, few, many)
			if many <= few+10 && many <= 60 {
				break
			}
		}
		if many > 2*few { // if a release woke all of them, it would be seven times as many
			t.Errorf("%s: %.1f commands for a hand-over over 60 proxies, %.1f over 8", verb, many, few)
		}
	}
}

// handOverCost is how many commands Redis carries out for each grant of a lock that a client at each of that many
// proxies takes again and again.
func handOverCost(t *testing.T, verb string, proxies int) float64 {
	t.Helper()
	redis := redistest.Start(t)
	var grants atomic.Int64
	var stop atomic.Bool
	var workers sync.WaitGroup
	for range proxies {
		c := proxytest.Start(t, redis).Dial(t)
		workers.Go(func() {
			for !stop.Load() {
				c.Do(verb, "contended")
				grants.Add(1)
				c.Do("UNLOCK", "contended")
			}
		})
	}
	reach := func(n int64) {
		redistest.Eventually(t, time.Minute, strconv.FormatInt(n, 10)+" grants", func() bool { return grants.Load() >= n })
	}
	calls := func() int { return redis.Info(t, "stats", "total_commands_processed:") }
	reach(int64(2 * proxies))
	before, from := calls(), grants.Load()
	reach(from + 300)
	cost := float64(calls()-before) / float64(grants.Load()-from)
	stop.Store(true)
	workers.Wait()
	return cost
}
