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
			return b.pairs(ctx, f.Servers[fleet.Epoll], clients, func(id int) []string { return []string{"LOCK", key(id), "SYNC", replicas} })
		},
	}
}

// sharedLocks compares clients that hold one lock shared with those that hold a lock each.
func sharedLocks(clients int) scenario {
	const apart, alone, together = "LOCK, a key each", "SHARED, a key each", "SHARED, one key"
	return scenario{
		name: fmt.Sprintf("lock-shared-%d", clients), title: fmt.Sprintf("LOCK SHARED and UNLOCK, %d clients", clients), primary: "rate",
		about:       "As `lock-keys`, with shared holds: each client of a key of its own, or all of one key.",
		plot:        "LOCK SHARED and UNLOCK",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}},
		bases:       []string{apart},
		contestants: []string{apart, alone, together}, servers: []string{fleet.Epoll},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()
			return b.pairs(ctx, f.Servers[fleet.Epoll], clients, func(id int) []string {
				switch who {
				case apart:
					return []string{"LOCK", key(id)}
				case alone:
					return []string{"LOCK", key(id), "SHARED"}
				default:
					return []string{"LOCK", key(0), "SHARED"}
				}
			})
		},
	}
}

// limitedLocks compares clients that contend for one of eight permits of a lock with those that contend for the whole lock.
func limitedLocks(clients int) scenario {
	const whole, permits = "LOCK", "LOCK LIMIT 8"
	return scenario{
		name: fmt.Sprintf("lock-limit-%d", clients), title: fmt.Sprintf("LOCK LIMIT 8 and UNLOCK, one key, %d contenders", clients), primary: "rate",
		about:       "As `lock-one`, with eight clients that hold the lock together: each has one of its permits.",
		plot:        "LOCK and UNLOCK",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}},
		bases:       []string{whole},
		contestants: []string{whole, permits}, servers: []string{fleet.Epoll},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()(0)
			return b.pairs(ctx, f.Servers[fleet.Epoll], clients, func(int) []string {
				verb := strings.Fields(who)
				return append([]string{verb[0], key}, verb[1:]...)
			})
		},
	}
}

// pairs measures clients that send a lock command and UNLOCK of its key in turns.
func (b *bench) pairs(ctx context.Context, s *fleet.Server, clients int, acquire func(id int) []string) (sample, error) {
	out := sample{values: map[string]float64{}}
	w := &load.Pairs{
		Held: load.Positive, Pair: &load.Recorder{Hist: load.NewHistogram()},
		Acquire: func(id int) []byte { return load.Command(acquire(id)...) },
		Release: func(id int) []byte { return load.Command("UNLOCK", acquire(id)[1]) },
	}
	w.Hist = load.NewHistogram()
	err := b.drive(ctx, s, clients, w, func(l *load.Loop) (float64, error) {
		w.On = true
		return b.count(ctx, l, w.Pair.Hist)
	}, out.values)
	out.hist = w.Pair.Hist
	histValues(out.values, out.hist)
	return out, err
}
