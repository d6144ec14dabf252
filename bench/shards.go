package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockproxy/lockproxy/bench/fleet"
	"github.com/lockproxy/lockproxy/bench/load"
)

// clusterClient is the contestant that needs no proxy: the clients know the cluster themselves.
const clusterClient = "go-redis"

// shardScenarios are about ordinary commands in front of a cluster.
func shardScenarios(p plan) []scenario {
	return []scenario{
		clusterGets("cluster-get-1", "GET 64 B, 50 clients, a cluster of one shard", 1, 1),
		clusterGets("cluster-get-3", "GET 64 B, 50 clients, three shards", 3, 1),
		clusterGets("cluster-get-3-p16", "GET 64 B, 50 clients, three shards, 16 commands at a time", 3, 16),
		clusterMGets(10), clusterMGets(100),
		reshard(p.moved),
	}
}

// inCluster is what scenarios in front of a cluster have in common.
func inCluster(s scenario, t fleet.Topology) scenario {
	s.servers, s.topology = []string{fleet.Lockproxy, fleet.Envoy}, t
	s.contestants = []string{fleet.Lockproxy, fleet.Envoy, clusterClient}
	s.bases = []string{fleet.Envoy, clusterClient}
	s.columns = append(trafficColumns(), s.columns...)
	s.prepare = fillCluster
	return s
}

func newClusterClient(f *fleet.Fleet, clients int) *redis.ClusterClient {
	return redis.NewClusterClient(&redis.ClusterOptions{Addrs: f.Addrs(), PoolSize: clients, DisableIdentity: true})
}

func fillCluster(f *fleet.Fleet) error {
	c := newClusterClient(f, 1)
	defer func() { _ = c.Close() }()
	ctx, cancel := context.WithTimeout(context.Background(), runLimit)
	defer cancel()
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for i := range keys {
			p.Set(ctx, smallKey(i), strings.Repeat("x", 64), 0)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("fill: %w", err)
	}
	return nil
}

func clusterGets(name, title string, shards, depth int) scenario {
	return inCluster(scenario{
		name: name, title: title, primary: "rate", plot: "latency of a reply",
		about: "As `get-50`. Redis µs are those of all shards. go-redis is a ClusterClient in the generator's process, with a goroutine for each client.",
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			if who != clusterClient {
				return b.closed(ctx, f.Servers[who], 50, &load.Closed{Commands: gets(keys, smallKey), Depth: depth})
			}
			return b.library(ctx, f, 50, depth, func(ctx context.Context, c *redis.ClusterClient) error {
				if depth == 1 {
					return c.Get(ctx, smallKey(rand.IntN(keys))).Err()
				}
				return pipelined(ctx, c, depth)
			})
		},
	}, fleet.Topology{Shards: shards})
}

func pipelined(ctx context.Context, c *redis.ClusterClient, n int) error {
	_, err := c.Pipelined(ctx, func(p redis.Pipeliner) error {
		for range n {
			p.Get(ctx, smallKey(rand.IntN(keys)))
		}
		return nil
	})
	return err
}

func clusterMGets(n int) scenario {
	var mgets load.Commands
	for range 1000 {
		args := []string{"MGET"}
		for range n {
			args = append(args, smallKey(rand.IntN(keys)))
		}
		mgets = append(mgets, load.Command(args...))
	}
	return inCluster(scenario{
		name: fmt.Sprintf("cluster-mget-%d", n), title: fmt.Sprintf("MGET of %d keys of all slots, 50 clients, three shards", n), primary: "rate", plot: "latency of a reply",
		about: "go-redis does not divide an MGET, so its clients send a pipeline of GET. Values per command are of one MGET.",
		run: func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
			if who != clusterClient {
				return b.closed(ctx, f.Servers[who], 50, &load.Closed{Commands: mgets, Depth: 1})
			}
			return b.library(ctx, f, 50, 1, func(ctx context.Context, c *redis.ClusterClient) error { return pipelined(ctx, c, n) })
		},
	}, fleet.Topology{Shards: 3})
}

// library measures clients of go-redis, one goroutine each. An operation is n commands.
func (b *bench) library(ctx context.Context, f *fleet.Fleet, clients, n int, op func(context.Context, *redis.ClusterClient) error) (sample, error) {
	all := load.NewHistogram()
	out := sample{values: map[string]float64{}, hist: all}
	c := newClusterClient(f, clients)
	defer func() { _ = c.Close() }()
	for _, d := range []time.Duration{b.warm(clients), b.plan.measure} {
		all.Reset()
		m, err := newMeter(ctx, f.Servers[fleet.Direct])
		if err != nil {
			return out, err
		}
		if err := each(ctx, clients, d, all, func(ctx context.Context) error { return op(ctx, c) }); err != nil {
			return out, err
		}
		done := float64(all.TotalCount()) * float64(n)
		seconds, err := m.end(ctx, out.values, done)
		if err != nil {
			return out, err
		}
		out.values["rate"] = done / seconds / 1000
	}
	histValues(out.values, all)
	return out, nil
}

// each runs op in as many goroutines as there are clients, over and over for a time, and adds its latencies to all.
func each(ctx context.Context, clients int, d time.Duration, all *hist, op func(context.Context) error) error {
	var mu sync.Mutex
	var failed error
	var group sync.WaitGroup
	end := time.Now().Add(d)
	for range clients {
		group.Go(func() {
			own := load.NewHistogram()
			var err error
			for err == nil && ctx.Err() == nil && time.Now().Before(end) {
				begun := time.Now()
				err = op(ctx)
				_ = own.RecordValue(int64(time.Since(begun)))
			}
			mu.Lock()
			defer mu.Unlock()
			all.Merge(own)
			failed = errors.Join(failed, err)
		})
	}
	group.Wait()
	return errors.Join(failed, ctx.Err())
}

// counted counts the errors among the replies of a workload.
type counted struct {
	*load.Closed
	errors int
}

// Reply counts a reply.
func (w *counted) Reply(c *load.Conn, r load.Reply) {
	if len(r.Head) > 0 && r.Head[0] == '-' {
		w.errors++
	}
	w.Closed.Reply(c, r)
}

func reshard(slots int) scenario {
	return inCluster(scenario{
		name: "reshard", title: fmt.Sprintf("GET and SET, 50 clients, while %d slots move from one shard of three to another", slots), primary: "max", fresh: true, rounds: 3,
		plot: "latency of a reply", columns: []column{{"errors", "errors", "%.0f"}, {"slots", "slots/s", "%.0f"}},
		about: "The slots move one after the other, each with its keys, as redis-cli does it. Errors are replies that begin with a minus, " +
			"or errors of the library.",
	}.whileMoving(slots), fleet.Topology{Shards: 3})
}

// whileMoving measures from the beginning of a reshard to its end.
func (s scenario) whileMoving(slots int) scenario {
	s.run = func(ctx context.Context, b *bench, f *fleet.Fleet, who string) (sample, error) {
		moved := make(chan error, 1)
		var took time.Duration
		move := func() {
			begun := time.Now()
			err := moveSlots(ctx, f, slots)
			took = time.Since(begun)
			moved <- err
		}
		out := sample{values: map[string]float64{}, hist: load.NewHistogram()}
		var err error
		if who == clusterClient {
			err = b.libraryWhile(ctx, f, move, moved, &out)
		} else {
			err = b.loopWhile(ctx, f.Servers[who], move, moved, &out)
		}
		histValues(out.values, out.hist)
		out.values["slots"] = float64(slots) / took.Seconds()
		return out, err
	}
	return s
}

// mixed are reads and writes.
func mixed() load.Commands {
	return append(gets(keys, smallKey), sets(keys, smallKey, strings.Repeat("y", 64))...)
}

func (b *bench) loopWhile(ctx context.Context, s *fleet.Server, move func(), moved <-chan error, out *sample) error {
	w := &counted{Closed: &load.Closed{Commands: mixed(), Depth: 1}}
	w.Hist = out.hist
	var err error
	driven := b.drive(ctx, s, 50, w, func(l *load.Loop) (float64, error) {
		l.ErrorsAllowed, w.On = true, true
		go move()
		ended := false
		failed := l.Run(ctx, runLimit, func() bool {
			select {
			case err = <-moved:
				ended = true
			default:
			}
			return ended
		})
		w.End(l)
		if !ended {
			err = errors.Join(err, <-moved)
		}
		return float64(w.Hist.TotalCount()), failed
	}, out.values)
	out.values["errors"] = float64(w.errors)
	return errors.Join(driven, err)
}

func (b *bench) libraryWhile(ctx context.Context, f *fleet.Fleet, move func(), moved <-chan error, out *sample) error {
	c := newClusterClient(f, 50)
	defer func() { _ = c.Close() }()
	var mu sync.Mutex
	failures := 0
	op := func(ctx context.Context) error {
		err := c.Get(ctx, smallKey(rand.IntN(keys))).Err()
		if rand.IntN(2) == 0 {
			err = c.Set(ctx, smallKey(rand.IntN(keys)), strings.Repeat("y", 64), 0).Err()
		}
		if err != nil && ctx.Err() == nil {
			mu.Lock()
			failures++
			mu.Unlock()
		}
		return nil
	}
	if err := each(ctx, 50, b.warm(50), load.NewHistogram(), op); err != nil {
		return err
	}
	m, err := newMeter(ctx, f.Servers[fleet.Direct])
	if err != nil {
		return err
	}
	running, stop := context.WithCancel(ctx)
	defer stop()
	var result error
	go func() {
		move()
		result = <-moved
		stop()
	}()
	failures = 0
	_ = each(running, 50, runLimit, out.hist, op) // it ends with the move
	<-running.Done()
	n := float64(out.hist.TotalCount())
	seconds, err := m.end(ctx, out.values, n)
	out.values["rate"], out.values["errors"] = n/seconds/1000, float64(failures)
	return errors.Join(result, err)
}

// moveSlots moves the first slots of the first node to the second one.
func moveSlots(ctx context.Context, f *fleet.Fleet, n int) error {
	var nodes []*redis.Client
	for _, addr := range f.Addrs() {
		c := redis.NewClient(&redis.Options{Addr: addr, DisableIdentity: true})
		defer func() { _ = c.Close() }()
		nodes = append(nodes, c)
	}
	from, to := f.Nodes[0], f.Nodes[1]
	host, port, _ := strings.Cut(to.Addr, ":")
	for slot := range n {
		if err := nodes[1].Do(ctx, "CLUSTER", "SETSLOT", slot, "IMPORTING", from.ID).Err(); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		if err := nodes[0].Do(ctx, "CLUSTER", "SETSLOT", slot, "MIGRATING", to.ID).Err(); err != nil {
			return fmt.Errorf("slot %d: %w", slot, err)
		}
		for {
			keys, err := nodes[0].ClusterGetKeysInSlot(ctx, slot, 10).Result()
			if err != nil {
				return fmt.Errorf("slot %d: %w", slot, err)
			}
			if len(keys) == 0 {
				break
			}
			args := []any{"MIGRATE", host, port, "", 0, 5000, "KEYS"}
			for _, k := range keys {
				args = append(args, k)
			}
			if err := nodes[0].Do(ctx, args...).Err(); err != nil {
				return fmt.Errorf("slot %d: %w", slot, err)
			}
		}
		for _, i := range []int{1, 0, 2} { // the new owner at first
			if err := nodes[i].Do(ctx, "CLUSTER", "SETSLOT", slot, "NODE", to.ID).Err(); err != nil {
				return fmt.Errorf("slot %d: %w", slot, err)
			}
		}
	}
	return nil
}
