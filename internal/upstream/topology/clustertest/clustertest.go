// Package clustertest makes views of clusters that do not exist, for tests. It is no part of redistest, which the tests
// of packages below topology use.
package clustertest

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A Share is a primary of a cluster that does not exist, with a range of slots.
type Share struct {
	ID, Address string
	From, To    int // slots, both inclusive
}

// View is the view of a cluster of these primaries.
func View(t testing.TB, shares ...Share) *topology.View {
	t.Helper()
	slots, addresses := map[string]string{}, map[string]string{}
	for _, s := range shares {
		slots[s.ID] += fmt.Sprintf(" %d-%d", s.From, s.To)
		addresses[s.ID] = s.Address
	}
	var nodes strings.Builder
	for id, ranges := range slots {
		fmt.Fprintf(&nodes, "%s %s@1 master - 0 0 1 connected%s\n", id, addresses[id], ranges)
	}
	told, err := topology.ReadNodes(nodes.String())
	if err != nil {
		t.Fatal(err)
	}
	new(topology.Book).Learn(told, addresses, time.Now())
	return told.View("cluster_state:ok\r\ncluster_current_epoch:1\r\n")
}

// Split is the view in which the server a serves the slots before limit, and b the others.
func Split(t testing.TB, limit int) *topology.View {
	t.Helper()
	var shares []Share
	if limit > 0 {
		shares = append(shares, Share{"a", "h:1", 0, limit - 1})
	}
	if limit < hashslot.Count {
		shares = append(shares, Share{"b", "h:2", limit, hashslot.Count - 1})
	}
	return View(t, shares...)
}

// Equal is the view in which these servers have equal shares, in this order.
func Equal(t testing.TB, owners ...string) *topology.View {
	t.Helper()
	var shares []Share
	for i, id := range owners {
		shares = append(shares, Share{id, "h:1", i * hashslot.Count / len(owners), (i+1)*hashslot.Count/len(owners) - 1})
	}
	return View(t, shares...)
}
