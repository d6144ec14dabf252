package cluster

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// The servers of a cluster name each other, in CLUSTER SLOTS and in redirections. Here only upstream.map knows where that name is.
func TestServersOfAClusterHaveNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, "--cluster-announce-hostname", "servers.example", "--cluster-preferred-endpoint-type", "hostname")
	stranger := proxytest.KeyOf(t, c, c.Nodes[1])
	if got := proxytest.Dial(t, c.Nodes[0].Addr()).Quiet("GET", stranger); !strings.Contains(got, " servers.example:") {
		t.Fatalf("a redirection without a name: %q", got)
	}
	where, err := topology.ParseAddressMap([]string{"servers.example=127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient, func(o *proxy.Options) { o.Upstream.Map = where })
	allKeysAreServed(t, srv)
	aLockGoesWithItsSlot(t, c, srv)
	c.Failover(c.Nodes[c.Primaries])
	allKeysAreServed(t, srv)
}

func TestAClusterHasIPv6Addresses(t *testing.T) {
	t.Parallel()
	at := redistest.IPv6(t)
	c := redistest.StartClusterAt(t, []redistest.Place{at, at, at}, 3, 0)
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	allKeysAreServed(t, srv)
	aLockGoesWithItsSlot(t, c, srv)
}

// allKeysAreServed writes and reads keys of all servers, one by one and together.
func allKeysAreServed(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	p := srv.Dial(t)
	mget, want := []string{"MGET"}, "*30\r\n"
	for i := range 30 {
		key := fmt.Sprint("key", i)
		p.Script("SET "+key+" x", "+OK")
		mget, want = append(mget, key), want+"$1\r\nx\r\n"
	}
	if got := p.Quiet(mget...); got != want {
		t.Errorf("MGET: %q", got)
	}
}

// aLockGoesWithItsSlot moves the slot of a lock that has a waiter.
func aLockGoesWithItsSlot(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	t.Helper()
	key := "{" + proxytest.KeyOf(t, c, c.Nodes[1]) + "}lock"
	holder, waiter := srv.Dial(t), srv.Dial(t)
	first := proxytest.Integer(t, holder.Quiet("LOCK", key))
	waiter.Send("LOCK", key)
	proxytest.WaitFor(t, "a waiter", func() bool {
		return strings.Contains(srv.Dial(t).Quiet("LOCKINFO", key), "local-waiters\r\n:1")
	})
	before := refusals(t, c.Nodes[1], "ASK")
	move := redistest.Move{Cluster: c, Slot: hashslot.Of([]byte(key)), From: c.Nodes[1], To: c.Nodes[2]}
	move.Begin()
	move.Keys()
	if got := holder.Quiet("GET", key+"none"); got != "$-1\r\n" || refusals(t, c.Nodes[1], "ASK") == before {
		t.Errorf("GET: %q, redirections before: %d", got, before)
	}
	move.End()
	holder.Script("UNLOCK "+key, ":1")
	got, err := waiter.Frame()
	if err != nil || proxytest.Integer(t, got) <= first {
		t.Errorf("the waiter: %q, %v, want more than %d", got, err, first)
	}
}
