package cluster

import (
	"fmt"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// servesAll returns when new clients of each proxy write and lock keys of all servers.
func servesAll(t *testing.T, srv *proxytest.Proxy) {
	t.Helper()
	for i := range 30 {
		key := fmt.Sprint("key", i)
		redistest.Eventually(t, proxytest.Follows, "a key to be served", func() bool { return srv.Dial(t).Quiet("SET", key, "x") == "+OK\r\n" })
	}
	allKeysAreServed(t, srv)
	p := srv.Dial(t)
	for i := range 10 {
		key := fmt.Sprint("lock", i)
		p.Script("LOCK "+key, ":", "UNLOCK "+key, ":1")
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
			srv := proxytest.StartOverCluster(t, c)
			allKeysAreServed(t, srv)
			old := srv.Dial(t)
			old.Quiet("SET", "k", "old")
			c.Anew()
			servesAll(t, srv)
			old.Script("SET k new", "+OK")
		})
	}
}

func TestNodesOfAClusterAreReplacedOneByOne(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0)
	c.Age()
	srv := proxytest.StartOverCluster(t, c)
	allKeysAreServed(t, srv)
	for i := range c.Nodes {
		c.Replace(i)
		servesAll(t, srv)
	}
}

// A node that was reset is not heard alone.
func TestANodeThatIsResetTakesNothing(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	srv := proxytest.StartOverCluster(t, c)
	allKeysAreServed(t, srv)
	first, last := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[2])
	c.Reset(c.Nodes[1])
	c.Nodes[1].Do(t, "CLUSTER", "SET-CONFIG-EPOCH", 1000)
	c.Nodes[1].Do(t, "CLUSTER", "ADDSLOTSRANGE", 0, redistest.Slots-1)
	for range 3 {
		told := make(chan struct{})
		srv.Shared().Upstream.Refresh("", func() { close(told) })
		<-told
		for _, key := range []string{first, last} {
			srv.Dial(t).Script("SET "+key+" x", "+OK")
		}
	}
	if n := c.Nodes[1].Do(t, "DBSIZE"); n != int64(0) {
		t.Errorf("%d keys are at the node that was reset", n)
	}
}
