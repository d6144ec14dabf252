package proxy

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/slots"
)

// A proxy that has no connection to a server notices that it was stopped while it connects: the kernel accepts the connection, and the server
// says nothing.
func TestANewConnectionToAStoppedPrimaryIsASignOfItsEnd(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	key := keyOf(t, c, c.Nodes[0])
	srv := startProxy(t, c.Nodes[1], func(o *Options) {
		o.Upstream.Addr = "cluster://" + c.Addrs()
		o.Upstream.DialTimeout = patience
	})
	p := dialClient(t, address(srv))
	p.quiet("GET", keyOf(t, c, c.Nodes[1]))
	c.Nodes[0].Pause()
	p.send("SET", key, "x")
	c.AwaitOwner(slots.Of([]byte(key)), c.Nodes[3], c.Nodes[1], c.Nodes[2], c.Nodes[3])
	begin := time.Now()
	if got, err := p.frame(); got != "+OK\r\n" {
		t.Errorf("SET: %q, %v", got, err)
	}
	if took := time.Since(begin); took > patience/2 { // it would wait for DialTimeout
		t.Errorf("the proxy uses the successor %v after all other servers knew it", took)
	}
}
