package cluster

import (
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A WAIT that comes after the death of a server with the session's writes waits for its successor, as other commands do. Then it says that the writes may
// be lost: the successor counts its own replicas, and may never have had the writes. What the session writes from then on is counted as before.
func TestWaitDoesNotCountWhatASuccessorMayNotHave(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	proxies := proxytest.StartOverCluster(t, c, proxytest.Patient)
	lost, kept := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	type client struct {
		p     *proxytest.Client
		wants string
		args  []string
	}
	var clients []client
	verbs := []string{"WAIT 1 5000"}
	if c.Nodes[0].Do(t, "COMMAND", "INFO", "WAITAOF").([]any)[0] != nil { // not in Redis 7.0
		verbs = append(verbs, "WAITAOF 0 0 5000")
	}
	for _, srv := range proxies {
		for _, verb := range verbs {
			for _, keys := range [][]string{{lost}, {lost, kept}, {kept, lost}, {kept}} {
				p := srv.Dial(t)
				for _, key := range keys {
					p.Script("SET "+key+" x", "+OK")
				}
				wants := "-INDOUBT "
				switch {
				case len(keys) > 1 || keys[0] == lost:
				case strings.HasPrefix(verb, "WAITAOF"):
					wants = "*2\r\n:0\r\n:"
				default:
					wants = ":1\r\n"
				}
				clients = append(clients, client{p, wants, strings.Fields(verb)})
			}
		}
	}
	c.Nodes[0].AwaitReplicas(t, 1)
	kill(t, c, c.Nodes[0], proxies)
	var running sync.WaitGroup
	for _, one := range clients {
		running.Go(func() {
			if got := one.p.Quiet(one.args...); !strings.HasPrefix(got, one.wants) {
				t.Errorf("%q: %q, want %q", one.args, got, one.wants)
			}
			one.p.Script("SET "+kept+" y", "+OK", "WAIT 1 5000", ":1\r\n", "SET "+lost+" y", "+OK", "WAIT 0 10", ":0\r\n")
		})
	}
	running.Wait()
}

// A server with the session's writes is dead, and nothing takes its place.
func TestWaitAwaitsASuccessorForALimitedTime(t *testing.T) {
	const limit = 500 * time.Millisecond
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	proxies := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = limit })
	lost, kept := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	clients := map[string]*proxytest.Client{}
	for engine, srv := range proxies {
		clients[engine] = srv.Dial(t)
		clients[engine].Script("SET "+kept+" x", "+OK", "SET "+lost+" x", "+OK")
	}
	kill(t, c, c.Nodes[0], proxies)
	for engine, p := range clients {
		begin := time.Now()
		p.Raw(proxytest.Inline("WAIT 0 100", "GET "+kept))
		if got, err := p.Frame(); !strings.HasPrefix(got, "-CLUSTERDOWN ") || time.Since(begin) < limit {
			t.Errorf("%s: %q, %v, after %v", engine, got, err, time.Since(begin))
		}
		p.Gets("$1\r\nx\r\n")
	}
}
