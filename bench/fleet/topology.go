package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Topology is the arrangement of the servers of Redis. The zero value is a single one.
type Topology struct {
	Shards    int // of a cluster; 0: there is no cluster
	Replicas  int // of each primary
	Sentinels int // that watch the primary, if there is no cluster
}

// Times after which a server of Redis counts as failed. They are short, so that Redis's own part of a failover is.
const (
	nodeTimeout = time.Second // of a cluster
	downAfter   = time.Second // of Sentinels
)

// PrimaryName is the name of the primary at the Sentinels.
const PrimaryName = "bench"

// A Node is one server of Redis.
type Node struct {
	Addr    string
	Process *Process
	ID      string // in a cluster

	bus string // port of the cluster's own connections
}

// Replica is the first replica of a primary.
func (f *Fleet) Replica(primary int) *Node {
	return f.Nodes[f.primaries+primary]
}

// Addrs are the addresses of all nodes.
func (f *Fleet) Addrs() (all []string) {
	for _, n := range f.Nodes {
		all = append(all, n.Addr)
	}
	return all
}

// redises starts the servers of Redis, and returns the first one.
func (f *Fleet) redises(ctx context.Context, bin string, t Topology) (*Server, error) {
	f.primaries = max(1, t.Shards)
	for range f.primaries * (1 + t.Replicas) {
		if err := f.redis(ctx, bin, t.Shards > 0); err != nil {
			return nil, fmt.Errorf("redis: %w", err)
		}
	}
	first := f.Nodes[0]
	s := &Server{Name: Direct, Addr: first.Addr, Redis: first.Process, RedisAddr: first.Addr, Upstream: first.Addr}
	for _, n := range f.Nodes[1:] {
		s.Others = append(s.Others, n.Process)
	}
	var err error
	if t.Shards > 0 {
		s.Upstream = "cluster://" + strings.Join(f.Addrs(), ",")
		err = f.cluster(ctx, t)
	} else {
		err = f.replicas(ctx)
	}
	if err == nil && t.Sentinels > 0 {
		err = f.sentinels(ctx, bin, t)
		s.Upstream = "sentinel://" + strings.Join(f.Sentinels, ",") + "/" + PrimaryName
	}
	return s, err
}

func (f *Fleet) redis(ctx context.Context, bin string, clustered bool) (err error) {
	n := &Node{}
	if n.Addr, err = f.freePort(); err != nil {
		return err
	}
	args := []string{
		"--port", port(n.Addr), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no", "--repl-diskless-sync-delay", "0",
		"--maxclients", fmt.Sprint(f.fileLimit - 64), "--tcp-backlog", "4096", "--loglevel", "warning",
	}
	if clustered {
		bus, err := f.freePort()
		if err != nil {
			return err
		}
		n.bus = port(bus)
		args = append(args, "--cluster-enabled", "yes", "--cluster-port", n.bus, "--cluster-announce-ip", "127.0.0.1", "--cluster-config-file", "nodes-"+n.bus+".conf",
			"--cluster-node-timeout", fmt.Sprint(nodeTimeout.Milliseconds()))
	}
	f.Nodes = append(f.Nodes, n)
	n.Process, err = f.run(ctx, n.Addr, "redis-"+port(n.Addr), bin, args...)
	return err
}

// cluster joins the nodes.
func (f *Fleet) cluster(ctx context.Context, t Topology) (err error) {
	const slots = 16384
	for i, n := range f.Nodes {
		if n.ID, err = Do(n.Addr, "CLUSTER", "MYID"); err != nil {
			return err
		}
		orders := [][]string{{"CLUSTER", "SET-CONFIG-EPOCH", fmt.Sprint(i + 1)}}
		if i < t.Shards {
			orders = append(orders, []string{"CLUSTER", "ADDSLOTSRANGE", fmt.Sprint(i * slots / t.Shards), fmt.Sprint((i+1)*slots/t.Shards - 1)})
		}
		if i > 0 {
			orders = append(orders, []string{"CLUSTER", "MEET", "127.0.0.1", port(f.Nodes[0].Addr), f.Nodes[0].bus})
		}
		for _, order := range orders {
			if _, err := Do(n.Addr, order...); err != nil {
				return fmt.Errorf("%v: %w", order, err)
			}
		}
	}
	known := fmt.Sprintf("cluster_known_nodes:%d\r", len(f.Nodes))
	if err := f.await(ctx, f.Nodes, []string{"CLUSTER", "INFO"}, "cluster_state:ok\r", known); err != nil {
		return err
	}
	for i, n := range f.Nodes[t.Shards:] {
		if _, err := Do(n.Addr, "CLUSTER", "REPLICATE", f.Nodes[i%t.Shards].ID); err != nil {
			return fmt.Errorf("replica: %w", err)
		}
	}
	if err := f.await(ctx, f.Nodes[t.Shards:], []string{"INFO", "replication"}, "master_link_status:up\r"); err != nil {
		return err
	}
	return f.await(ctx, f.Nodes, []string{"CLUSTER", "INFO"}, "cluster_state:ok\r")
}

// replicas makes all nodes but the first its replicas.
func (f *Fleet) replicas(ctx context.Context) error {
	for _, n := range f.Nodes[1:] {
		if _, err := Do(n.Addr, "REPLICAOF", "127.0.0.1", port(f.Nodes[0].Addr)); err != nil {
			return fmt.Errorf("replica: %w", err)
		}
	}
	return f.await(ctx, f.Nodes[1:], []string{"INFO", "replication"}, "master_link_status:up\r")
}

const sentinelConfig = `port %s
bind 127.0.0.1
sentinel monitor %s 127.0.0.1 %s %d
sentinel down-after-milliseconds %[2]s %[5]d
sentinel failover-timeout %[2]s 5000
`

func (f *Fleet) sentinels(ctx context.Context, bin string, t Topology) error {
	var nodes []*Node
	for i := range t.Sentinels {
		addr, err := f.freePort()
		if err != nil {
			return err
		}
		path := filepath.Join(f.dir, fmt.Sprintf("sentinel-%d.conf", i))
		config := fmt.Appendf(nil, sentinelConfig, port(addr), PrimaryName, port(f.Nodes[0].Addr), t.Sentinels/2+1, downAfter.Milliseconds())
		if err := os.WriteFile(path, config, 0o600); err != nil {
			return fmt.Errorf("configure: %w", err)
		}
		if _, err := f.run(ctx, addr, fmt.Sprintf("sentinel-%d", i), bin, path, "--sentinel"); err != nil {
			return fmt.Errorf("sentinel: %w", err)
		}
		f.Sentinels = append(f.Sentinels, addr)
		nodes = append(nodes, &Node{Addr: addr})
	}
	return f.await(ctx, nodes, []string{"INFO", "sentinel"}, fmt.Sprintf("status=ok,address=%s,slaves=%d,sentinels=%d", f.Nodes[0].Addr, t.Replicas, t.Sentinels))
}

// await asks nodes until all words are in the answer of each.
func (f *Fleet) await(ctx context.Context, nodes []*Node, question []string, words ...string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for _, n := range nodes {
		for {
			text, err := Do(n.Addr, question...)
			if err == nil && containsAll(text, words) {
				break
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s: no %q from %s: %w: %.500s", n.Addr, words, question, errors.Join(ctx.Err(), err), text)
			case <-time.After(probeEvery):
			}
		}
	}
	return nil
}

func containsAll(text string, words []string) bool {
	for _, w := range words {
		if !strings.Contains(text, w) {
			return false
		}
	}
	return true
}
