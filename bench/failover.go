package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/bench/fleet"
)

// failoverScenarios measure how long clients cannot write when a primary goes.
func failoverScenarios() []scenario {
	var all []scenario
	for _, cause := range []struct {
		name, what string
		begin      func(f *fleet.Fleet) error
	}{
		{"kill", "kill -9 of the primary", func(f *fleet.Fleet) error { f.Nodes[0].Process.Kill(); return nil }},
		{"stop", "SIGSTOP of the primary", func(f *fleet.Fleet) error { return f.Nodes[0].Process.Freeze() }},
		{"planned", "a planned failover", planned},
	} {
		all = append(all,
			failover("failover-cluster-"+cause.name, "A cluster of three shards: "+cause.what, cause.begin, fleet.Topology{Shards: 3, Replicas: 1}, fleet.Envoy),
			failover("failover-sentinel-"+cause.name, "A primary, a replica and three Sentinels: "+cause.what, cause.begin, fleet.Topology{Replicas: 1, Sentinels: 3}))
	}
	return all
}

// The library's own log would stand between the results.
func init() { redis.SetLogger(silence{}) }

type silence struct{}

// Printf drops an entry.
func (silence) Printf(context.Context, string, ...any) {}

// planned moves the primary without a failure.
func planned(f *fleet.Fleet) error {
	var err error
	if len(f.Sentinels) > 0 {
		_, err = fleet.Do(f.Sentinels[0], "SENTINEL", "FAILOVER", fleet.PrimaryName)
	} else {
		_, err = fleet.Do(f.Replica(0).Addr, "CLUSTER", "FAILOVER")
	}
	return err
}

const writers = 8 // clients of a failover

func failover(name, title string, begin func(*fleet.Fleet) error, t fleet.Topology, others ...string) scenario {
	servers := append([]string{fleet.Lockproxy}, others...)
	return scenario{
		name: name, title: title, primary: "beyond", fresh: true, rounds: 3, topology: t,
		about: fmt.Sprintf("%d clients increment a key of that primary, one command at a time, and connect again after an error. "+
			"The gap is the longest time between two successful writes of one client. Redis's own gap is that of a client which tries the primary and its replica "+
			"directly each millisecond. The difference is what a server or a library adds; it is cut off after %v. "+
			"Lost are the writes that were answered and that the new primary does not have. Nodes count as failed after a second.", writers, recovery),
		columns: []column{
			{"beyond", "beyond Redis's own, ms", "%.0f"},
			{"gap", "gap ms", "%.0f"},
			{"own", "Redis's own ms", "%.0f"},
			{"errors", "errors", "%.0f"},
			{"lost", "lost writes", "%.0f"},
			{"rate", "k/s before", "%.1f"},
		},
		contestants: append(slices.Clip(servers), clusterClient), servers: servers,
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			return b.failOver(ctx, f, who, begin)
		},
	}
}

// gaps follows the successes of one client.
type gaps struct {
	mu      sync.Mutex
	last    time.Time // success; zero: none
	longest time.Duration
	n       int // successes
}

func (g *gaps) success() {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := time.Now()
	if !g.last.IsZero() {
		g.longest = max(g.longest, now.Sub(g.last))
	}
	g.last = now
	g.n++
}

func (g *gaps) count() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

func (g *gaps) since(t time.Time) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.last.After(t)
}

// The bounds of one run of a failover.
const (
	before   = 500 * time.Millisecond // of ordinary writing
	after    = 500 * time.Millisecond // the same, when all clients write again
	recovery = 15 * time.Second       // until they do; longer gaps are cut off
)

func (b *bench) failOver(ctx context.Context, f *fleet.Fleet, who string, begin func(*fleet.Fleet) error) (sample, error) {
	out := sample{values: map[string]float64{}}
	running, stop := context.WithCancel(ctx)
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()

	key := keyOfFirst(f)
	own := &gaps{}
	var promoted atomic.Bool
	for _, n := range []*fleet.Node{f.Nodes[0], f.Replica(0)} {
		group.Go(func() {
			w := &writer{addr: n.Addr, key: key + ":direct", patience: 50 * time.Millisecond}
			defer w.close()
			for running.Err() == nil {
				if w.write(running) == nil {
					own.success()
					promoted.CompareAndSwap(false, n != f.Nodes[0])
				}
				pause(running, time.Millisecond)
			}
		})
	}
	op, closeAll := b.writesThrough(f, who, key)
	defer closeAll()
	clients := make([]*gaps, writers)
	var errs atomic.Int64
	for i := range clients {
		g := &gaps{}
		clients[i] = g
		group.Go(func() {
			write, done := op()
			defer done()
			for running.Err() == nil {
				if write(running) == nil {
					g.success()
				} else if running.Err() == nil {
					errs.Add(1)
					pause(running, time.Millisecond)
				}
			}
		})
	}
	pause(running, before)
	total := 0
	for i, g := range clients {
		n := g.count()
		if n == 0 {
			return out, fmt.Errorf("client %d could not write before the failover", i)
		}
		total += n
	}
	out.values["rate"] = float64(total) / before.Seconds() / 1000
	if err := begin(f); err != nil {
		return out, fmt.Errorf("failover: %w", err)
	}
	limit := time.Now().Add(recovery)
	for !promoted.Load() && ctx.Err() == nil {
		if time.Now().After(limit) {
			return out, fmt.Errorf("no replica was promoted within %v", recovery)
		}
		pause(running, time.Millisecond)
	}
	moved := time.Now()
	limit = moved.Add(recovery)
	for _, g := range clients {
		for !g.since(moved) && time.Now().Before(limit) && ctx.Err() == nil {
			pause(running, time.Millisecond)
		}
	}
	pause(running, after)
	stop()
	ended := time.Now()
	group.Wait()
	value, err := fleet.Do(f.Replica(0).Addr, "GET", key)
	if err != nil {
		return out, fmt.Errorf("the new primary: %w", err)
	}
	has, err := strconv.Atoi(strings.TrimPrefix(value, "$"))
	if err != nil {
		return out, fmt.Errorf("the new primary has %q", value)
	}
	answered := 0
	var worst time.Duration
	for _, g := range clients {
		answered += g.n
		worst = max(worst, g.longest, ended.Sub(g.last))
	}
	const ms = float64(time.Millisecond)
	out.values["gap"], out.values["own"] = float64(worst)/ms, float64(own.longest)/ms
	out.values["lost"] = float64(max(0, answered-has))
	out.values["beyond"], out.values["errors"] = max(0, float64(worst-own.longest)/ms), float64(errs.Load())
	return out, nil
}

// keyOfFirst is a key of the first primary: slots of the first shard are below a third.
func keyOfFirst(f *fleet.Fleet) string {
	if f.Nodes[0].ID == "" {
		return "failover"
	}
	for i := 0; ; i++ {
		key := fmt.Sprintf("{failover:%d}", i)
		if reply, err := fleet.Do(f.Nodes[0].Addr, "SET", key, "0"); err == nil && reply == "+OK" {
			return key
		}
	}
}

// writesThrough returns a function that makes a client, and one that ends what the clients share.
func (b *bench) writesThrough(f *fleet.Fleet, who, key string) (client func() (write func(context.Context) error, done func()), end func()) {
	if who != clusterClient {
		return func() (func(context.Context) error, func()) {
			w := &writer{addr: f.Servers[who].Addr, key: key, patience: 2 * recovery}
			return w.write, w.close
		}, func() {}
	}
	var c redis.UniversalClient
	if len(f.Sentinels) > 0 {
		c = redis.NewFailoverClient(&redis.FailoverOptions{MasterName: fleet.PrimaryName, SentinelAddrs: f.Sentinels, PoolSize: writers, DisableIdentity: true})
	} else {
		c = newClusterClient(f, writers)
	}
	return func() (func(context.Context) error, func()) {
		return func(ctx context.Context) error { return c.Incr(ctx, key).Err() }, func() {}
	}, func() { _ = c.Close() }
}

// writer is a client of a failover: one connection, which is made again after an error.
type writer struct {
	addr, key string
	patience  time.Duration // with a reply
	c         *fleet.Client
}

func (w *writer) close() {
	if w.c != nil {
		w.c.Close()
		w.c = nil
	}
}

func (w *writer) write(ctx context.Context) error {
	if w.c == nil {
		c, err := fleet.NewClient(w.addr)
		if err != nil {
			return err
		}
		w.c = c
	}
	defer context.AfterFunc(ctx, w.c.Close)()
	_, err := w.c.DoWithin(w.patience, "INCR", w.key)
	if err != nil && !fleet.IsReply(err) {
		w.close()
	}
	return err
}
