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
		contestants = append(contestants, fmt.Sprintf("SYNC %d %s", replicas, fleet.Lockproxy))
	}
	return scenario{
		name: fmt.Sprintf("lock-sync-%d", clients), title: fmt.Sprintf("LOCK with SYNC and UNLOCK, different keys, %d clients, two replicas", clients), primary: "rate",
		about:       "As `lock-keys`, with a grant that is answered when 0, 1 or 2 replicas have it. Redis µs are of the primary and the replicas.",
		plot:        "LOCK and UNLOCK",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}},
		bases:       contestants[:1],
		contestants: contestants, servers: []string{fleet.Lockproxy}, topology: fleet.Topology{Replicas: 2},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key, replicas := keyNames(), strings.Fields(who)[1]
			return b.lockPairs(ctx, f.Servers[fleet.Lockproxy], clients, func(id int) []string { return []string{"LOCK", key(id), "SYNC", replicas} })
		},
	}
}

// The steps of Redisson's read lock 3.44, without the key in which it keeps the answer for a repetition.
const (
	readScript = `if redis.call('hget', KEYS[1], 'mode') ~= 'read' then redis.call('hset', KEYS[1], 'mode', 'read') end
local timeout = KEYS[2] .. ':' .. redis.call('hincrby', KEYS[1], ARGV[1], 1)
redis.call('set', timeout, 1)
redis.call('pexpire', timeout, ARGV[2])
redis.call('pexpire', KEYS[1], math.max(redis.call('pttl', KEYS[1]), ARGV[2]))
return 1`
	unreadScript = `if redis.call('hget', KEYS[1], 'mode') ~= 'read' or redis.call('hexists', KEYS[1], ARGV[1]) == 0 then return 0 end
local left = redis.call('hincrby', KEYS[1], ARGV[1], -1)
if left == 0 then redis.call('hdel', KEYS[1], ARGV[1]) end
redis.call('del', KEYS[2] .. ':' .. left + 1)
local longest = -1
if redis.call('hlen', KEYS[1]) > 1 then
  for _, owner in ipairs(redis.call('hkeys', KEYS[1])) do
    for n = tonumber(redis.call('hget', KEYS[1], owner)) or 0, 1, -1 do
      longest = math.max(longest, redis.call('pttl', ARGV[2] .. ':' .. owner .. ':rwlock_timeout:' .. n))
    end
  end
end
if longest > 0 then redis.call('pexpire', KEYS[1], longest) return 1 end
redis.call('del', KEYS[1])
redis.call('publish', KEYS[3], 0)
return 1`
)

// sharedLocks compares clients that hold one lock shared with those that hold a lock each.
func sharedLocks(clients int) scenario {
	const apart, alone, together, redisson = "LOCK, a key each", "SHARED, a key each", "SHARED, one key", "Redisson's scripts, one key"
	return scenario{
		name: fmt.Sprintf("lock-shared-%d", clients), title: fmt.Sprintf("LOCK SHARED and UNLOCK, %d clients", clients), primary: "rate",
		about: "As `lock-keys`, with shared holds: each client of a key of its own, or all of one key. " +
			"The last one takes the steps of Redisson's read lock by EVALSHA through lockproxy, in the same layout.",
		plot:        "LOCK SHARED and UNLOCK",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}},
		bases:       []string{apart, redisson},
		contestants: []string{apart, alone, together, redisson}, servers: []string{fleet.Lockproxy}, prepare: loadScripts,
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()
			if who == redisson {
				return b.pairs(ctx, f.Servers[fleet.Lockproxy], clients, func(id int) (acquire, release []string) {
					lock, owner := key(0), fmt.Sprint("00000000-0000-0000-0000-000000000000:", id)
					keys := []string{"3", lock, "{" + lock + "}:" + owner + ":rwlock_timeout", "redisson_rwlock:{" + lock + "}"}
					acquire = append(append([]string{"EVALSHA", sha(readScript)}, keys...), owner, fmt.Sprint(lease))
					return acquire, append(append([]string{"EVALSHA", sha(unreadScript)}, keys...), owner, "{"+lock+"}")
				})
			}
			return b.lockPairs(ctx, f.Servers[fleet.Lockproxy], clients, func(id int) []string {
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
		contestants: []string{whole, permits}, servers: []string{fleet.Lockproxy},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()(0)
			return b.lockPairs(ctx, f.Servers[fleet.Lockproxy], clients, func(int) []string {
				verb := strings.Fields(who)
				return append([]string{verb[0], key}, verb[1:]...)
			})
		},
	}
}

// lockPairs measures clients that send a lock command and UNLOCK of its key in turns.
func (b *bench) lockPairs(ctx context.Context, s *fleet.Server, clients int, acquire func(id int) []string) (sample, error) {
	return b.pairs(ctx, s, clients, func(id int) ([]string, []string) {
		command := acquire(id)
		return command, []string{"UNLOCK", command[1]}
	})
}

// pairs measures clients that send two commands in turns.
func (b *bench) pairs(ctx context.Context, s *fleet.Server, clients int, commands func(id int) (acquire, release []string)) (sample, error) {
	out := sample{values: map[string]float64{}}
	w := &load.Pairs{
		Held: load.Positive, Pair: &load.Recorder{Hist: load.NewHistogram()},
		Acquire: func(id int) []byte { acquire, _ := commands(id); return load.Command(acquire...) },
		Release: func(id int) []byte { _, release := commands(id); return load.Command(release...) },
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
