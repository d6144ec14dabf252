// Package clustertest makes views of clusters that do not exist, for tests. It is no part of redistest, which the tests
// of packages below topology use.
package clustertest

import (
	"net"
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/resp"
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
	number := func(n int) resp.Value { return resp.Value{Kind: resp.Integer, Int: int64(n)} }
	text := func(s string) resp.Value { return resp.Value{Kind: resp.Bulk, Str: []byte(s)} }
	list := func(elems ...resp.Value) resp.Value { return resp.Value{Kind: resp.Array, Elems: elems} }
	var all []resp.Value
	for _, s := range shares {
		host, digits, err := net.SplitHostPort(s.Address)
		if err != nil {
			t.Fatal(err)
		}
		port, err := strconv.Atoi(digits)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, list(number(s.From), number(s.To), list(text(host), number(port), text(s.ID))))
	}
	told, err := topology.ReadSlots(list(all...), "")
	if err != nil {
		t.Fatal(err)
	}
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
