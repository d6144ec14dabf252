package proxy

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// servesAll returns when new clients of each proxy write and lock keys of all servers.
func servesAll(t *testing.T, proxies map[string]*Server) {
	t.Helper()
	for engine, srv := range proxies {
		for i := range 30 {
			key := fmt.Sprint(engine, i)
			redistest.Eventually(t, follows, "a key to be served", func() bool { return dialClient(t, address(srv)).quiet("SET", key, "x") == "+OK\r\n" })
		}
	}
	allKeysAreServed(t, proxies)
	for engine, srv := range proxies {
		p := dialClient(t, address(srv))
		for i := range 10 {
			key := fmt.Sprint("lock:", engine, i)
			if got := p.quiet("LOCK", key); got[0] != ':' {
				t.Errorf("%s: LOCK: %q", engine, got)
			}
			if got := p.quiet("UNLOCK", key); got != ":1\r\n" {
				t.Errorf("%s: UNLOCK: %q", engine, got)
			}
		}
	}
}

// The nodes have other ids then, and their epochs are smaller than those of before.
func TestAClusterThatIsCreatedAnewIsFollowed(t *testing.T) {
	t.Parallel()
	for _, replicas := range []int{0, 1} {
		t.Run(fmt.Sprint(replicas, " replicas"), func(t *testing.T) {
			t.Parallel()
			c := redistest.StartCluster(t, 3, replicas)
			c.Age()
			proxies := startOverCluster(t, c)
			allKeysAreServed(t, proxies)
			old := map[string]*peer{}
			for engine, srv := range proxies {
				old[engine] = dialClient(t, address(srv))
				old[engine].quiet("SET", "k", "old")
			}
			c.Anew()
			servesAll(t, proxies)
			for engine, p := range old {
				if got := p.quiet("SET", "k", "new"); got != "+OK\r\n" {
					t.Errorf("%s: a client from before: %q", engine, got)
				}
			}
		})
	}
}

func TestNodesOfAClusterAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	c.Age()
	proxies := startOverCluster(t, c)
	allKeysAreServed(t, proxies)
	for i := range c.Nodes {
		c.Replace(i)
		servesAll(t, proxies)
	}
}

// A node that was reset is not heard alone.
func TestANodeThatIsResetTakesNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	proxies := startOverCluster(t, c)
	allKeysAreServed(t, proxies)
	first, last := keyOf(t, c, c.Nodes[0]), keyOf(t, c, c.Nodes[2])
	c.Reset(c.Nodes[1])
	c.Nodes[1].Do(t, "CLUSTER", "SET-CONFIG-EPOCH", 1000)
	c.Nodes[1].Do(t, "CLUSTER", "ADDSLOTSRANGE", 0, redistest.Slots-1)
	for range 3 {
		for engine, srv := range proxies {
			told := make(chan struct{})
			srv.shared.Upstream.Refresh("", func() { close(told) })
			<-told
			for _, key := range []string{first, last} {
				if got := dialClient(t, address(srv)).quiet("SET", key, "x"); got != "+OK\r\n" {
					t.Errorf("%s: SET %s: %q", engine, key, got)
				}
			}
		}
	}
	if n := c.Nodes[1].Do(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%d keys are at the node that was reset", n)
	}
}
