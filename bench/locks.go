package main

import (
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

// Contestants besides lockproxy in scenarios about locks.
const (
	scripts          = "EVALSHA " // two scripts of a lock, sent to a server
	evalsha          = scripts + fleet.Direct
	throughTwemproxy = scripts + fleet.Twemproxy
	throughLockproxy = scripts + fleet.Lockproxy

	redislock   = "bsm/redislock"
	redsyncLib  = "redsync"
	rueidislock = "rueidislock"
)

const lease = 30_000 // ms, for those that have none by default

// The two well-known scripts: take the key if it is free; remove it if it is mine.
const (
	acquireScript = `if redis.call('set', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 else return 0 end`
	releaseScript = `if redis.call('get', KEYS[1]) == ARGV[1] then return redis.call('del', KEYS[1]) else return 0 end`
)

func sha(script string) string {
	sum := sha1.Sum([]byte(script))
	return hex.EncodeToString(sum[:])
}

func loadScripts(f *fleet.Fleet) error {
	for _, script := range []string{acquireScript, releaseScript, readScript, unreadScript} {
		if _, err := fleet.Do(f.Servers[fleet.Direct].Addr, "SCRIPT", "LOAD", script); err != nil {
			return err
		}
	}
	return nil
}

func lockScenarios(p plan) []scenario {
	return []scenario{
		manyKeys(64), manyKeys(500),
		oneKey(2), oneKey(64), oneKey(1000),
		heldLocks(p.held, p.lease), killedHolder(p.kills), sharedLocks(64), limitedLocks(64), syncedLocks(64),
	}
}

// runs makes the keys of one run its own: a lock may outlive the run that took it.
var runs atomic.Int64

func manyKeys(clients int) scenario {
	return scenario{
		name: fmt.Sprintf("lock-keys-%d", clients), title: fmt.Sprintf("LOCK and UNLOCK, different keys, %d clients", clients),
		about: "A pair is LOCK and UNLOCK of the client's own key, the second sent when the first is answered. Latency is of the pair. " +
			"The libraries run in one process with a connection per client, except for rueidislock, which shares its own; its release is not waited for.",
		plot: "LOCK and UNLOCK", primary: "rate",
		columns:     []column{{"rate", "k pairs/s", "%.1f"}, colP50, colP99, colMax, {"proxy", "proxy µs/pair", "%.1f"}, {"redis", "Redis µs/pair", "%.1f"}, {"self", "client µs/pair", "%.1f"}, {"allocs", "allocs/pair", "%.1f"}},
		bases:       []string{evalsha, throughTwemproxy, throughLockproxy, redislock, redsyncLib, rueidislock},
		contestants: []string{fleet.Lockproxy, evalsha, throughTwemproxy, throughLockproxy, redislock, redsyncLib, rueidislock},
		servers:     []string{fleet.Lockproxy, fleet.Twemproxy}, prepare: loadScripts,
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()
			out := sample{values: map[string]float64{}}
			s := f.Servers[who]
			w := &load.Pairs{Held: load.Positive, Pair: &load.Recorder{Hist: load.NewHistogram()}}
			w.Hist = load.NewHistogram()
			switch who {
			case fleet.Lockproxy:
				w.Acquire = func(id int) []byte { return load.Command("LOCK", key(id)) }
				w.Release = func(id int) []byte { return load.Command("UNLOCK", key(id)) }
			case evalsha, throughTwemproxy, throughLockproxy:
				s = f.Servers[strings.TrimPrefix(who, scripts)]
				w.Acquire = func(id int) []byte {
					return load.Command("EVALSHA", sha(acquireScript), "1", key(id), fmt.Sprint("owner:", id), fmt.Sprint(lease))
				}
				w.Release = func(id int) []byte {
					return load.Command("EVALSHA", sha(releaseScript), "1", key(id), fmt.Sprint("owner:", id))
				}
			default:
				c := &crowd{clients: clients, key: key}
				err := b.crowd(ctx, f, who, c, out.values)
				out.hist = c.pairs
				histValues(out.values, c.pairs)
				return out, err
			}
			err := b.drive(ctx, s, clients, w, func(l *load.Loop) (float64, error) {
				w.On = true
				return b.count(ctx, l, w.Pair.Hist)
			}, out.values)
			out.hist = w.Pair.Hist
			histValues(out.values, out.hist)
			return out, err
		},
	}
}

// keyNames names the keys of one run.
func keyNames() func(id int) string {
	run := runs.Add(1)
	return func(id int) string { return fmt.Sprintf("lock:%d:%d", run, id) }
}

// Contestants that are a verb of lockproxy.
func verbs() []string { return []string{"LOCK " + fleet.Lockproxy, "FAIRLOCK " + fleet.Lockproxy} }

func oneKey(clients int) scenario {
	return scenario{
		name: fmt.Sprintf("lock-one-%d", clients), title: fmt.Sprintf("One key, %d contenders", clients),
		about: "All ask for the same lock, release it at once, and ask again. A hand-over is a grant to another client than the one before: " +
			"a client that takes the lock twice in a row makes no hand-over. Waits that have not ended with the run count with the time they have taken so far. " +
			"Share is the fewest grants that a client got, as a part of the mean. Calls are commands that Redis executed per grant, in scripts too.",
		plot: "from asking to holding", primary: "handovers",
		columns: []column{
			{"handovers", "k hand-overs/s", "%.2f"},
			{"rate", "k grants/s", "%.2f"},
			{"p50", "wait p50 ms", "%.2f"},
			{"p99", "wait p99 ms", "%.2f"},
			{"max", "wait max ms", "%.1f"},
			{"skew", "max/mean", "%.1f"},
			{"share", "share", "%.2f"},
			{"scripts", "scripts/grant", "%.2f"},
			{"calls", "calls/grant", "%.1f"},
			{"proxy", "proxy µs", "%.1f"},
			{"redis", "Redis µs", "%.1f"},
		},
		bases:       []string{redislock, redsyncLib, rueidislock},
		contestants: append(verbs(), redislock, redsyncLib, rueidislock),
		servers:     []string{fleet.Lockproxy},
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			key := keyNames()(0)
			out := sample{values: map[string]float64{}}
			verb, server, isVerb := cutVerb(who)
			if !isVerb {
				c := &crowd{clients: clients, key: func(int) string { return key }}
				err := b.crowd(ctx, f, who, c, out.values)
				out.hist = c.waits
				contention(out.values, c.grants, c.handovers, c.perClient, out)
				return out, err
			}
			w := &load.Pairs{
				Held:    load.Positive,
				Acquire: func(int) []byte { return load.Command(verb, key) },
				Release: func(int) []byte { return load.Command("UNLOCK", key) },
			}
			w.Hist = load.NewHistogram()
			out.hist = w.Hist
			s := f.Servers[server]
			var all, scripts float64
			err := b.drive(ctx, s, clients, w, func(l *load.Loop) (n float64, err error) {
				if all, scripts, err = fleet.Calls(s.RedisAddr); err != nil {
					return 0, err
				}
				w.On = true
				if _, err := b.count(ctx, l, w.Hist); err != nil {
					return 0, err
				}
				all2, scripts2, err := fleet.Calls(s.RedisAddr)
				all, scripts = all2-all, scripts2-scripts
				w.End(l)
				return float64(w.Grants), err
			}, out.values)
			if err != nil {
				return out, err
			}
			out.values["calls"], out.values["scripts"] = all/float64(w.Grants), scripts/float64(w.Grants)
			contention(out.values, w.Grants, w.Handovers, w.PerConn, out)
			return out, nil
		},
	}
}

func cutVerb(who string) (verb, server string, ok bool) {
	verb, server, ok = strings.Cut(who, " ")
	return verb, server, ok && server == fleet.Lockproxy
}

// contention sets the values of a scenario in which clients contend for one key.
func contention(values map[string]float64, grants, handovers int64, perClient []int64, out sample) {
	if out.hist == nil {
		return
	}
	histValues(values, out.hist)
	if grants == 0 {
		values["handovers"], values["share"] = 0, 0
		return
	}
	values["handovers"] = values["rate"] * float64(handovers) / float64(grants)
	values["skew"] = values["max"] / max(values["mean"], 0.001)
	values["share"] = float64(slices.Min(perClient)) * float64(len(perClient)) / float64(grants)
}
