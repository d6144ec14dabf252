package main

import (
	"context"
	"fmt"
	"strings"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

// syncedLocks compares grants that wait for replicas with those that do not.
func syncedLocks(clients int) scenario {
	var contestants []string
	for _, replicas := range []int{0, 1, 2} {
		contestants = append(contestants, fmt.Sprintf("SYNC %d %s", replicas, fleet.Epoll))
	}
	return scenario{
		name: fmt.Sprintf("lock-sync-%d", clients), title: fmt.Sprintf("LOCK with SYNC and UNLOCK, different keys, %d clients, two replicas", clients), primary: "rate",
		about:       "As `lock-keys`, with a grant that is answered when 0, 1 or 2 replicas have it. Redis µs are of the primary and the replicas.",
		plot:        "LOCK and UNLOCK",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}},
		bases:       contestants[:1],
		contestants: contestants, servers: []string{fleet.Epoll}, topology: fleet.Topology{Replicas: 2},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key, replicas := keyNames(), strings.Fields(who)[1]
			out := sample{values: map[string]float64{}}
			w := &load.Pairs{
				Held: load.Positive, Pair: &load.Recorder{Hist: load.NewHistogram()},
				Acquire: func(id int) []byte { return load.Command("LOCK", key(id), "SYNC", replicas) },
				Release: func(id int) []byte { return load.Command("UNLOCK", key(id)) },
			}
			w.Hist = load.NewHistogram()
			err := b.drive(ctx, f.Servers[fleet.Epoll], clients, w, func(l *load.Loop) (float64, error) {
				w.On = true
				return b.count(ctx, l, w.Pair.Hist)
			}, out.values)
			out.hist = w.Pair.Hist
			histValues(out.values, out.hist)
			return out, err
		},
	}
}
