package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// announce sends a SET of n bytes but for the last half, and returns when it has a connection of its own. The returned function sends the rest.
func announce(t *testing.T, srv *proxytest.Proxy, p *proxytest.Client, key string, n int) (rest func()) {
	t.Helper()
	before := srv.Stats().PinReasons["large"]
	p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s", len(key), key, n, strings.Repeat("x", n-n/2)))
	proxytest.WaitFor(t, "the command to be streamed", func() bool { return srv.Stats().PinReasons["large"] > before })
	return func() { p.Raw(strings.Repeat("x", n/2) + "\r\n") }
}

// The clients together send several times the memory that the proxy may have for all of them. None is closed.
func largeCommandsAreStreamed(t *testing.T, c *redistest.Cluster) {
	const n = 8 << 20 // with six clients twice the memory of all
	for engine, srv := range proxytest.StartOverCluster(t, c, proxytest.LittleMemory) {
		var running sync.WaitGroup
		for i := range 6 {
			p, key := srv.Dial(t), fmt.Sprint(engine, i)
			running.Go(func() {
				defer p.Quiet("DEL", key)
				p.Raw(proxytest.Inline("SET "+key+" old", "CLIENT REPLY SKIP", "GET "+key))
				p.Raw(fmt.Sprintf("*3\r\n$6\r\nAPPEND\r\n$%d\r\n%s\r\n$%d\r\n", len(key), key, n))
				for range n >> 20 {
					p.Raw(strings.Repeat("x", 1<<20))
				}
				p.Raw("\r\n")
				p.Raw(proxytest.Inline("STRLEN "+key, "GETRANGE "+key+" 2 4", "MGET none:1 none:2"))
				for _, want := range []string{"+OK\r\n", fmt.Sprintf(":%d\r\n", n+3), fmt.Sprintf(":%d\r\n", n+3), "$3\r\ndxx\r\n", "*2\r\n$-1\r\n$-1\r\n"} {
					if got, err := p.Frame(); got != want {
						t.Errorf("%s: %.60q, %v, want %q", key, got, err, want)
						return
					}
				}
			})
		}
		running.Wait()
		if n := srv.Stats().Closed["memory_limit"]; n != 0 {
			stats := srv.Stats()
			t.Errorf("%s: %d clients have been closed; waits for a connection: %d, %d in vain", engine, n, stats.PinWaits, stats.PinTimeouts)
		}
	}
}

// partOfACommand finds a client in CLIENT LIST whose command has come in part.
var partOfACommand = regexp.MustCompile(`\bqbuf=\d{6,}`)

// The question in front of a large command follows redirections. Of the command itself nothing is left to be sent again.
func largeCommandsFollowTheirSlot(t *testing.T, c *redistest.Cluster) {
	const n = 6 << 20
	stored := fmt.Sprintf(":%d\r\n", n)
	for engine, srv := range proxytest.StartOverCluster(t, c, proxytest.LittleMemory, proxytest.Patient) {
		p, m, key := srv.Dial(t), newMover(t, c), "large"+engine
		slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
		home := m.owner[slot]
		there, third := (home+1)%c.Primaries, (home+2)%c.Primaries
		p.Script("GET "+key, "$-1")
		m.begin(slot, there) // the key does not exist: its server sends clients to the other one
		announce(t, srv, p, key, n)()
		p.Gets("+OK")
		p.Script("BLPOP "+key+" 0.01", "-WRONGTYPE") // as a command that waits
		p.Script("STRLEN "+key, stored)
		m.keys(slot, there)
		m.end(slot, there)
		p.Quiet("DEL", key)
		m.move(slot, third) // the session's view is older
		announce(t, srv, p, key, n)()
		p.Expect(1)
		p.Script("STRLEN "+key, stored)
		p.Quiet("SET", key, "old")
		rest := announce(t, srv, p, key, n)
		proxytest.WaitFor(t, "the server to have a part of the command", func() bool {
			return partOfACommand.MatchString(c.Nodes[third].Do(t, "CLIENT", "LIST").(string))
		})
		m.move(slot, home)
		rest()
		p.Gets("-TRYAGAIN the slot of the key moved")
		p.Script("GET "+key, "$3\r\nold\r\n", "SET "+key+" new", "+OK", "DEL "+key, ":1")
	}
}

// A user may have the right to write, and none to ask.
func largeCommandsNeedNoOtherRight(t *testing.T, c *redistest.Cluster) {
	const n = 6 << 20
	for _, node := range c.Nodes {
		node.Do(t, "ACL", "SETUSER", "writer", "on", ">secret", "~*", "+set", "+strlen", "+multi", "+exec")
		defer node.Do(t, "ACL", "DELUSER", "writer")
	}
	for engine, srv := range proxytest.StartOverCluster(t, c, proxytest.LittleMemory) {
		p := srv.Dial(t)
		p.Script("AUTH writer secret", "+OK")
		announce(t, srv, p, "a", n)()
		p.Expect(1)
		p.Script("STRLEN a", fmt.Sprintf(":%d\r\n", n), "MULTI", "+OK", "STRLEN a", "+QUEUED", "EXEC", "*1\r\n", "STRLEN none", ":0")
		if reasons := srv.Stats().PinReasons; len(reasons) > 0 {
			t.Errorf("%s: connections are kept: %v", engine, reasons)
		}
	}
}

// A large command for a dead server waits for a successor. If there is none, it is read to its end and refused.
func TestLargeCommandsOfADeadServerAreRefused(t *testing.T) {
	t.Parallel()
	const limit = 300 * time.Millisecond
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	proxies := proxytest.StartOverCluster(t, c, proxytest.LittleMemory, func(o *proxy.Options) { o.Upstream.FailoverWait = limit })
	key, elsewhere := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	kill(t, c, c.Nodes[0], proxies)
	for engine, srv := range proxies {
		p, begin := srv.Dial(t), time.Now()
		for range 2 {
			p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, 12<<20, strings.Repeat("x", 12<<20)))
		}
		p.Raw(proxytest.Inline("SET " + elsewhere + " x"))
		p.Gets("-CLUSTERDOWN ", "-CLUSTERDOWN ", "+OK")
		if took := time.Since(begin); took < 2*limit {
			t.Errorf("%s: refused after %v", engine, took)
		}
	}
}
