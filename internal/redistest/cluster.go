package redistest

import (
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Slots is the number of hash slots of a cluster.
const Slots = 16384

// Cluster is a Redis Cluster whose slots are spread evenly over its primaries. Each node is a Server of its own: it can
// be killed, paused and restarted.
type Cluster struct {
	// Nodes are all nodes: first those that began as primaries, by ascending slots, then replicas. Node Primaries+i
	// began as a replica of node i % Primaries. The caller must not change it.
	Nodes []*Server

	// Primaries is the number of primaries.
	Primaries int

	t   testing.TB
	ids map[*Server]string // they survive everything but CLUSTER RESET HARD
}

// NodeTimeout is the time after which a node takes a silent node for down.
const NodeTimeout = time.Second

// StartCluster runs a cluster of primaries, each with the given number of replicas, and returns when all nodes agree on
// it and all replicas have their first copy. Extra arguments are for each node. A Redis of version 7.0 or later is
// needed.
func StartCluster(t testing.TB, primaries, replicasEach int, args ...string) *Cluster {
	t.Helper()
	return StartClusterAt(t, nil, primaries, replicasEach, args...)
}

// StartClusterAt is StartCluster with each node at a place of its own; nil: all on the loopback interface.
func StartClusterAt(t testing.TB, places []Place, primaries, replicasEach int, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, places, primaries, replicasEach, (*Cluster).share, args)
}

// StartScatteredCluster is StartCluster with each slot in a range of its own, as after many moves: the slots are dealt
// out to the primaries in turn.
func StartScatteredCluster(t testing.TB, primaries, replicasEach int, args ...string) *Cluster {
	t.Helper()
	return startCluster(t, nil, primaries, replicasEach, func(_ *Cluster, i int) []any {
		words := []any{"CLUSTER", "ADDSLOTS"}
		for slot := i; slot < Slots; slot += primaries {
			words = append(words, slot)
		}
		return words
	}, args)
}

// startCluster runs a cluster. slots is the command that gives a primary its slots.
func startCluster(
	t testing.TB, places []Place, primaries, replicasEach int, slots func(c *Cluster, primary int) []any, args []string,
) *Cluster {
	t.Helper()
	c := &Cluster{t: t, Primaries: primaries, ids: map[*Server]string{}}
	for i := range primaries * (1 + replicasEach) {
		bus := Port(t)
		node := StartAt(t, at(places, i), append([]string{
			"--cluster-enabled", "yes", "--cluster-port", strconv.Itoa(bus),
			"--cluster-node-timeout", strconv.FormatInt(NodeTimeout.Milliseconds(), 10),
		}, args...)...)
		c.Nodes = append(c.Nodes, node)
	}
	c.form(func(primary int) []any { return slots(c, primary) })
	return c
}

// form makes nodes that know of no other a cluster. slots is the command that gives a primary its slots.
func (c *Cluster) form(slots func(primary int) []any) {
	c.t.Helper()
	t, primaries := c.t, c.Primaries
	for i, node := range c.Nodes { // before any node knows another
		c.ids[node], _ = node.Do(t, "CLUSTER", "MYID").(string)
		node.Do(t, "CLUSTER", "SET-CONFIG-EPOCH", i+1) // else nodes find out one by one that their epochs are equal
	}
	for i, node := range c.Nodes {
		if i < primaries {
			node.Do(t, slots(i)...)
		}
		for _, other := range c.Nodes {
			if other != node {
				node.Do(t, "CLUSTER", "MEET", other.place.Host, other.port, c.busOf(other))
			}
		}
	}
	for i, node := range c.Nodes[primaries:] {
		primary := c.Nodes[i%primaries]
		Eventually(t, startLimit, "a replica to know its primary", func() bool {
			_, err := node.ask("CLUSTER", "REPLICATE", c.ids[primary])
			return err == nil
		})
	}
	c.AwaitReady()
}

// share is the command that gives a primary its share of the slots, in the order of the primaries.
func (c *Cluster) share(primary int) []any {
	return []any{"CLUSTER", "ADDSLOTSRANGE", primary * Slots / c.Primaries, (primary+1)*Slots/c.Primaries - 1}
}

// Age raises the epochs of all nodes, as many failovers do.
func (c *Cluster) Age() {
	c.t.Helper()
	for range 3 {
		for _, node := range c.Nodes {
			node.Do(c.t, "CLUSTER", "BUMPEPOCH")
		}
	}
}

// Anew makes the nodes another cluster, without data, in which the primaries have their slots in reverse order. Its
// epochs begin anew.
func (c *Cluster) Anew() {
	c.t.Helper()
	for _, node := range c.Nodes {
		c.Reset(node)
	}
	c.form(func(primary int) []any { return c.share(c.Primaries - 1 - primary) })
}

// Reset makes a node forget the cluster, its data and its ID. The others know it by its old ID.
func (c *Cluster) Reset(node *Server) {
	c.t.Helper()
	if role, _ := node.Do(c.t, "ROLE").([]any); role[0] == "master" {
		node.Do(c.t, "FLUSHALL")
	}
	node.Do(c.t, "CLUSTER", "RESET", "HARD")
}

// Replace makes a primary without replicas a new one at the same address, with the same slots and the epoch 0.
func (c *Cluster) Replace(primary int) {
	c.t.Helper()
	node := c.Nodes[primary]
	before := c.ids[node]
	c.Reset(node)
	c.ids[node], _ = node.Do(c.t, "CLUSTER", "MYID").(string)
	for _, other := range c.Nodes {
		if other != node {
			other.Do(c.t, "CLUSTER", "FORGET", before)
		}
	}
	for _, other := range c.Nodes {
		if other != node {
			node.Do(c.t, "CLUSTER", "MEET", other.place.Host, other.port, c.busOf(other))
		}
	}
	node.Do(c.t, c.share(primary)...)
	c.AwaitReady()
}

func (c *Cluster) busOf(node *Server) string {
	port, _ := node.Do(c.t, "CONFIG", "GET", "cluster-port").([]any)[1].(string)
	return port
}

// Addrs are the addresses of all nodes, separated by commas.
func (c *Cluster) Addrs() string {
	addrs := make([]string, len(c.Nodes))
	for i, node := range c.Nodes {
		addrs[i] = node.Addr()
	}
	return strings.Join(addrs, ",")
}

// ID is the id of a node in the cluster.
func (c *Cluster) ID(node *Server) string { return c.ids[node] }

// AwaitReady returns when all nodes that run find the cluster complete and well: each slot has an owner, all nodes know
// each other, and each replica has its copy.
func (c *Cluster) AwaitReady() {
	c.t.Helper()
	for _, node := range c.Nodes {
		if node.serves() {
			Eventually(c.t, startLimit, "a node to find the cluster complete", func() bool { return c.complete(node) })
		}
	}
}

func (c *Cluster) complete(node *Server) bool {
	state, _ := node.Do(c.t, "CLUSTER", "INFO").(string)
	if !strings.Contains(state, "cluster_state:ok") || !strings.Contains(state, "cluster_slots_ok:"+strconv.Itoa(Slots)) {
		return false
	}
	up, replicas := 0, 0
	for _, n := range c.view(node) {
		if n.connected && !n.failing {
			up++
		}
		if n.replica {
			replicas++
		}
	}
	if up < c.running() || replicas != len(c.Nodes)-c.Primaries {
		return false
	}
	info, _ := node.Do(c.t, "INFO", "replication").(string)
	return strings.Contains(info, "role:master") || strings.Contains(info, "master_link_status:up")
}

func (c *Cluster) running() (n int) {
	for _, node := range c.Nodes {
		if node.serves() {
			n++
		}
	}
	return n
}

// Owner is the primary that serves a slot, as the first node says that runs and knows; nil: no node knows.
func (c *Cluster) Owner(slot int) *Server {
	c.t.Helper()
	for _, node := range c.Nodes {
		if !node.serves() {
			continue
		}
		if owner := c.ownerIn(c.view(node), slot); owner != nil {
			return owner
		}
	}
	return nil
}

// ownerIn is the primary that serves a slot in the view of a node; nil: there is none.
func (c *Cluster) ownerIn(view []seen, slot int) *Server {
	for _, n := range view {
		if !n.replica && !n.failing && n.owns(slot) {
			return c.at(n.addr)
		}
	}
	return nil
}

// AwaitOwner returns when all the given nodes take a primary for the owner of a slot.
func (c *Cluster) AwaitOwner(slot int, owner *Server, nodes ...*Server) {
	c.t.Helper()
	Eventually(c.t, startLimit, "the nodes to know the new owner of a slot", func() bool {
		return !slices.ContainsFunc(nodes, func(node *Server) bool { return c.ownerIn(c.view(node), slot) != owner })
	})
}

// SetNodeTimeout changes the time after which the nodes that run take a silent node for down.
func (c *Cluster) SetNodeTimeout(d time.Duration) {
	c.t.Helper()
	for _, node := range c.Nodes {
		if node.serves() {
			node.Do(c.t, "CONFIG", "SET", "cluster-node-timeout", d.Milliseconds())
		}
	}
}

// Failover makes a replica take over the slots of its primary in order, and returns when all nodes know it.
func (c *Cluster) Failover(replica *Server) {
	c.t.Helper()
	var err error
	Eventually(c.t, startLimit, "the replica to begin the failover", func() bool {
		_, err = replica.ask("CLUSTER", "FAILOVER")
		// The primary may only have had no processor for a while.
		return err == nil || !strings.Contains(err.Error(), "Master is down")
	})
	if err != nil && !strings.Contains(err.Error(), "to a replica") { // the replica has taken over by itself
		c.t.Fatalf("redistest: failover: %v", err)
	}
	Eventually(c.t, startLimit, "the replica to be a primary for all nodes", func() bool {
		for _, node := range c.Nodes {
			if !node.serves() {
				continue
			}
			for _, n := range c.view(node) {
				if c.at(n.addr) == replica && n.replica {
					return false
				}
			}
		}
		return true
	})
}

func (c *Cluster) at(addr string) *Server {
	for _, node := range c.Nodes {
		if node.Addr() == addr {
			return node
		}
	}
	return nil
}

// seen is one line of CLUSTER NODES.
type seen struct {
	addr                        string
	replica, failing, connected bool
	slots                       []string // "7" or "0-99"
}

func (n seen) owns(slot int) bool {
	for _, part := range n.slots {
		first, last, many := strings.Cut(part, "-")
		from, err := strconv.Atoi(first)
		if err != nil {
			continue // a slot that migrates is listed once more in brackets
		}
		to := from
		if many {
			to, _ = strconv.Atoi(last)
		}
		if from <= slot && slot <= to {
			return true
		}
	}
	return false
}

// view is the cluster as one node sees it.
func (c *Cluster) view(node *Server) []seen {
	reply, _ := node.Do(c.t, "CLUSTER", "NODES").(string)
	var all []seen
	for line := range strings.Lines(reply) {
		f := strings.Fields(line)
		if len(f) < 8 {
			continue
		}
		addr, _, _ := strings.Cut(f[1], "@")
		colon := max(0, strings.LastIndexByte(addr, ':')) // an IPv6 address has no brackets
		host, port := addr[:colon], strings.TrimPrefix(addr[colon:], ":")
		if host == "" {
			host = node.place.Host // the node itself, which does not know its address yet
		}
		all = append(all, seen{
			addr: net.JoinHostPort(host, port), replica: strings.Contains(f[2], "slave"),
			failing:   strings.Contains(f[2], "fail") || strings.Contains(f[2], "handshake"),
			connected: f[7] == "connected", slots: f[8:],
		})
	}
	return all
}
