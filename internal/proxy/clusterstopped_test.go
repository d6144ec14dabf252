package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
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
	c.AwaitOwner(hashslot.Of([]byte(key)), c.Nodes[3], c.Nodes[1], c.Nodes[2], c.Nodes[3])
	begin := time.Now()
	if got, err := p.frame(); got != "+OK\r\n" {
		t.Errorf("SET: %q, %v", got, err)
	}
	if took := time.Since(begin); took > patience/2 { // it would wait for DialTimeout
		t.Errorf("the proxy uses the successor %v after all other servers knew it", took)
	}
}

// A server that has been demoted may take long to answer: it writes its configuration to the disk first. Its clients have done nothing that the
// successor could not do: one waits, one is in a transaction, which is discarded, one watches a key.
func TestClientsOfADemotedServerStay(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	c.SetNodeTimeout(20 * time.Second) // no server takes it for dead
	type clients struct{ waits, transacts, watches *peer }
	all := map[string]clients{}
	key := keyOf(t, c, c.Nodes[0])
	slot := hashslot.Of([]byte(key))
	proxies := startOverCluster(t, c, patient)
	for engine, srv := range proxies {
		of := clients{dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))}
		of.transacts.script("MULTI", "+OK", "RPUSH {"+key+"}"+engine+" x", "+QUEUED")
		of.watches.script("WATCH "+key, "+OK")
		of.waits.send("BLPOP", "{"+key+"}"+engine, "0")
		all[engine] = of
	}
	redistest.Eventually(t, patience, "blocked clients", func() bool { return blocked(t, c.Nodes...) == len(all) })
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
		push := "RPUSH {" + key + "}" + engine + " x"
		of.transacts.script("EXEC", "-EXECABORT", "MULTI", "+OK", push, "+QUEUED", "EXEC", "*1\r\n:1")
		if got, err := of.waits.frame(); !strings.HasSuffix(got, "\r\nx\r\n") || err != nil {
			t.Errorf("%s: BLPOP: %q, %v", engine, got, err)
		}
		of.watches.script("MULTI", "+OK", "GET "+key, "+QUEUED", "EXEC", "*-1")
	}
}

// A server that is demoted and promoted again keeps its clients. Each sends nothing meanwhile. When the time is over that the server had after it was
// demoted, each has a command there.
func TestClientsOfAServerThatIsPromotedAgainStay(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	c.SetNodeTimeout(20 * time.Second)
	const wait = 4 * time.Second
	key := keyOf(t, c, c.Nodes[0])
	slot := hashslot.Of([]byte(key))
	proxies := startOverCluster(t, c, func(o *Options) { o.Upstream.FailoverWait = wait })
	all := map[string]*peer{}
	for engine, srv := range proxies {
		all[engine] = dialClient(t, address(srv))
		all[engine].script("SET "+key+" x", "+OK")
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
		client.send("SET", key, "y")
	}
	time.Sleep(wait + 300*time.Millisecond) // the fault: the server answers after that time
	c.Nodes[0].Continue()
	for engine, client := range all {
		if got, err := client.frame(); got != "+OK\r\n" || err != nil {
			t.Errorf("%s: %q, %v", engine, got, err)
		}
	}
}

// awaitOwner waits until a proxy sends the commands for a slot to that server.
func awaitOwner(t *testing.T, srv *Server, slot int, owner *redistest.Server) {
	t.Helper()
	redistest.Eventually(t, patience, "the view with the successor", func() bool {
		done := make(chan struct{})
		srv.shared.Upstream.Refresh(upstream.AnyNode, func() { close(done) })
		<-done
		now := srv.shared.Upstream.View().Owner(slot)
		return now != nil && now.Address == owner.Addr()
	})
}
