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
	type clients struct{ waits, transacts, watches *proxytest.Client }
	all := map[string]clients{}
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	slot := hashslot.Of([]byte(key))
	proxies := proxytest.StartOverCluster(t, c, proxytest.Patient)
	for engine, srv := range proxies {
		of := clients{srv.Dial(t), srv.Dial(t), srv.Dial(t)}
		of.transacts.Script("MULTI", "+OK", "RPUSH {"+key+"}"+engine+" x", "+QUEUED")
		of.watches.Script("WATCH "+key, "+OK")
		of.waits.Send("BLPOP", "{"+key+"}"+engine, "0")
		all[engine] = of
	}
	proxytest.AwaitBlocked(t, len(all), c.Nodes...)
	c.Nodes[0].Pause()
	c.Nodes[3].Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	c.AwaitOwner(slot, c.Nodes[3], c.Nodes[1], c.Nodes[2], c.Nodes[3])
	for _, srv := range proxies {
		awaitOwner(t, srv, slot, c.Nodes[3])
	}
	time.Sleep(300 * time.Millisecond) // the fault: it takes so long
	c.Nodes[0].Continue()
	c.AwaitOwner(slot, c.Nodes[3])
	time.Sleep(300 * time.Millisecond) // the clients think
	for engine, of := range all {
		of.transacts.Script("EXEC", "*1\r\n:1")
		if got, err := of.waits.Frame(); !strings.HasSuffix(got, "\r\nx\r\n") || err != nil {
			t.Errorf("%s: BLPOP: %q, %v", engine, got, err)
		}
		of.watches.Script("MULTI", "+OK", "GET "+key, "+QUEUED", "EXEC", "*-1")
	}
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
	proxies := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = wait })
	all := map[string]*proxytest.Client{}
	for engine, srv := range proxies {
		all[engine] = srv.Dial(t)
		all[engine].Script("SET "+key+" x", "+OK")
	}
	for _, owner := range []*redistest.Server{c.Nodes[3], c.Nodes[0]} {
		owner.Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
		c.AwaitOwner(slot, owner, c.Nodes...)
		for _, srv := range proxies {
			awaitOwner(t, srv, slot, owner)
		}
	}
	c.Nodes[0].Pause()
	for _, client := range all {
		client.Send("SET", key, "y")
	}
	time.Sleep(wait + 300*time.Millisecond) // the fault: the server answers after that time
	c.Nodes[0].Continue()
	for _, client := range all {
		client.Gets("+OK")
	}
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
