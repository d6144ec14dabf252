package cluster

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

// A proxy that has no connection to a server notices that it was stopped while it connects: the kernel accepts the connection, and the server
// says nothing.
func TestANewConnectionToAStoppedPrimaryIsASignOfItsEnd(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	srv := proxytest.Start(t, c.Nodes[1], func(o *proxy.Options) {
		o.Upstream.Addr = "cluster://" + c.Addrs()
		o.Upstream.DialTimeout = proxytest.Patience
	})
	p := srv.Dial(t)
	p.Quiet("GET", proxytest.KeyOf(t, c, c.Nodes[1]))
	c.Nodes[0].Pause()
	p.Send("SET", key, "x")
	c.AwaitOwner(hashslot.Of([]byte(key)), c.Nodes[3], c.Nodes[1], c.Nodes[2], c.Nodes[3])
	begin := time.Now()
	p.Gets("+OK")
	if took := time.Since(begin); took > proxytest.Patience/2 { // it would wait for DialTimeout
		t.Errorf("the proxy uses the successor %v after all other servers knew it", took)
	}
}

// A server that has been demoted may take long to answer: it writes its configuration to the disk first. Its clients have done nothing that the
// successor could not do: one waits, one is in a transaction, one watches a key.
func TestClientsOfADemotedServerStay(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	c.SetNodeTimeout(20 * time.Second) // no server takes it for dead
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	slot := hashslot.Of([]byte(key))
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	waits, transacts, watches := srv.Dial(t), srv.Dial(t), srv.Dial(t)
	transacts.Script("MULTI", "+OK", "RPUSH {"+key+"} x", "+QUEUED")
	watches.Script("WATCH "+key, "+OK")
	waits.Send("BLPOP", "{"+key+"}", "0")
	proxytest.AwaitBlocked(t, 1, c.Nodes...)
	c.Nodes[0].Pause()
	c.Nodes[3].Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	c.AwaitOwner(slot, c.Nodes[3], c.Nodes[1], c.Nodes[2], c.Nodes[3])
	awaitOwner(t, srv, slot, c.Nodes[3])
	time.Sleep(300 * time.Millisecond) // the fault: it takes so long
	c.Nodes[0].Continue()
	c.AwaitOwner(slot, c.Nodes[3])
	time.Sleep(300 * time.Millisecond) // the clients think
	transacts.Script("EXEC", "*1\r\n:1")
	if got, err := waits.Frame(); !strings.HasSuffix(got, "\r\nx\r\n") || err != nil {
		t.Errorf("BLPOP: %q, %v", got, err)
	}
	watches.Script("MULTI", "+OK", "GET "+key, "+QUEUED", "EXEC", "*-1")
}

// A server that is demoted and promoted again keeps its clients. Each sends nothing meanwhile. When the time is over that the server had after it was
// demoted, each has a command there.
func TestClientsOfAServerThatIsPromotedAgainStay(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	c.SetNodeTimeout(20 * time.Second)
	const wait = 4 * time.Second
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	slot := hashslot.Of([]byte(key))
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = wait })
	client := srv.Dial(t)
	client.Script("SET "+key+" x", "+OK")
	for _, owner := range []*redistest.Server{c.Nodes[3], c.Nodes[0]} {
		owner.Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
		c.AwaitOwner(slot, owner, c.Nodes...)
		awaitOwner(t, srv, slot, owner)
	}
	c.Nodes[0].Pause()
	client.Send("SET", key, "y")
	time.Sleep(wait + 300*time.Millisecond) // the fault: the server answers after that time
	c.Nodes[0].Continue()
	client.Gets("+OK")
}

// awaitOwner waits until a proxy sends the commands for a slot to that server.
func awaitOwner(t *testing.T, srv *proxytest.Proxy, slot int, owner *redistest.Server) {
	t.Helper()
	proxytest.WaitFor(t, "the view with the successor", func() bool {
		done := make(chan struct{})
		srv.Shared().Upstream.Refresh(topology.Any, func() { close(done) })
		<-done
		now := srv.Shared().Upstream.View().Owner(slot)
		return now != nil && now.Address == owner.Addr()
	})
}
