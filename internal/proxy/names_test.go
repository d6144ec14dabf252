package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// The servers of a cluster name each other, in CLUSTER SLOTS and in redirections. Here only upstream.map knows where that name is.
func TestServersOfAClusterHaveNames(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, "--cluster-announce-hostname", "servers.example", "--cluster-preferred-endpoint-type", "hostname")
	stranger := keyOf(t, c, c.Nodes[1])
	if got := dialClient(t, c.Nodes[0].Addr()).quiet("GET", stranger); !strings.Contains(got, " servers.example:") {
		t.Fatalf("a redirection without a name: %q", got)
	}
	where, err := topology.ParseAddressMap([]string{"servers.example=127.0.0.1"})
	if err != nil {
		t.Fatal(err)
	}
	proxies := startOverCluster(t, c, patient, func(o *Options) { o.Upstream.Map = where })
	allKeysAreServed(t, proxies)
	aLockGoesWithItsSlot(t, c, proxies)
	c.Failover(c.Nodes[c.Primaries])
	allKeysAreServed(t, proxies)
}

func TestAClusterHasIPv6Addresses(t *testing.T) {
	t.Parallel()
	at := ipv6(t)
	c := redistest.StartClusterAt(t, []redistest.Place{at, at, at}, 3, 0)
	proxies := startOverCluster(t, c, patient)
	allKeysAreServed(t, proxies)
	aLockGoesWithItsSlot(t, c, proxies)
}

// allKeysAreServed writes and reads keys of all servers, one by one and together.
func allKeysAreServed(t *testing.T, proxies map[string]*Server) {
	t.Helper()
	for engine, srv := range proxies {
		p := dialClient(t, address(srv))
		mget, want := []string{"MGET"}, "*30\r\n"
		for i := range 30 {
			key := fmt.Sprint(engine, i)
			if got := p.quiet("SET", key, "x"); got != "+OK\r\n" {
				t.Fatalf("%s: SET %s: %q", engine, key, got)
			}
			mget, want = append(mget, key), want+"$1\r\nx\r\n"
		}
		if got := p.quiet(mget...); got != want {
			t.Errorf("%s: MGET: %q", engine, got)
		}
	}
}

// aLockGoesWithItsSlot moves the slot of a lock that has a waiter.
func aLockGoesWithItsSlot(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	t.Helper()
	for engine, srv := range proxies {
		key := "{" + keyOf(t, c, c.Nodes[1]) + "}" + engine
		holder, waiter := dialClient(t, address(srv)), dialClient(t, address(srv))
		first := integer(t, holder.quiet("LOCK", key))
		waiter.send("LOCK", key)
		redistest.Eventually(t, patience, "a waiter", func() bool {
			return strings.Contains(dialClient(t, address(srv)).quiet("LOCKINFO", key), "local-waiters\r\n:1")
		})
		before := refusals(t, c.Nodes[1], "ASK")
		move := redistest.Move{Cluster: c, Slot: hashslot.Of([]byte(key)), From: c.Nodes[1], To: c.Nodes[2]}
		move.Begin()
		move.Keys()
		if got := holder.quiet("GET", key+"none"); got != "$-1\r\n" || refusals(t, c.Nodes[1], "ASK") == before {
			t.Errorf("%s: GET: %q, redirections before: %d", engine, got, before)
		}
		move.End()
		if got := holder.quiet("UNLOCK", key); got != ":1\r\n" {
			t.Errorf("%s: UNLOCK: %q", engine, got)
		}
		got, err := waiter.frame()
		if err != nil || integer(t, got) <= first {
			t.Errorf("%s: the waiter: %q, %v, want more than %d", engine, got, err, first)
		}
	}
}

func TestAServerHasAnIPv6Address(t *testing.T) {
	t.Parallel()
	srv := redistest.StartAt(t, ipv6(t))
	for _, engine := range engineNames() {
		proxy := startProxy(t, srv, func(o *Options) { o.Engine = engine })
		allKeysAreServed(t, map[string]*Server{engine: proxy})
	}
}

// Sentinels may know servers by names, and tell them. They, too, are reached by their name.
func TestSentinelsTellNames(t *testing.T) {
	t.Parallel()
	overAFailover(t, redistest.Place{Host: "localhost"}, "sentinel resolve-hostnames yes", "sentinel announce-hostnames yes")
}

func TestSentinelsHaveIPv6Addresses(t *testing.T) {
	t.Parallel()
	overAFailover(t, ipv6(t))
}

// overAFailover fails over from a server to another one, all at a place.
func overAFailover(t *testing.T, at redistest.Place, options ...string) {
	t.Helper()
	primary := redistest.StartAt(t, at, "--replica-announce-ip", at.Host)
	replica := redistest.StartReplicaAt(t, at, primary, "--replica-announce-ip", at.Host)
	s := redistest.StartSentinelsAt(t, at, 3, primary, []*redistest.Server{replica}, options...)
	told, _ := s.All[0].Do(t, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", s.Name).([]any)
	if len(told) != 2 || told[0] != at.Host {
		t.Fatalf("the Sentinels tell %q, want %s", told, at.Host)
	}
	srv := startProxy(t, primary, patient, func(o *Options) { o.Upstream.Addr = "sentinel://" + s.Addrs() + "/" + s.Name })
	p := dialClient(t, address(srv))
	redistest.Eventually(t, patience, "a lock", func() bool { return strings.HasPrefix(p.quiet("LOCK", "k", "SYNC", "1"), ":") })
	s.Failover()
	redistest.Eventually(t, patience, "the new primary", func() bool { return srv.shared.Upstream.Moves() == 1 })
	if got := p.quiet("UNLOCK", "k"); got != ":1\r\n" {
		t.Errorf("UNLOCK after the failover: %q", got)
	}
	if got := p.quiet("SET", "x", "1"); got != "+OK\r\n" {
		t.Errorf("SET after the failover: %q", got)
	}
}

// ipv6 is the loopback interface with its IPv6 address, if the machine has one.
func ipv6(t *testing.T) redistest.Place {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no ::1: %v", err)
	}
	_ = l.Close()
	return redistest.Place{Host: "::1"}
}
