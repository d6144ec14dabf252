package cluster

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// announce sends a SET of n bytes but for the last half, and returns when it has a connection of its own. The returned function sends the rest.
func announce(t *testing.T, srv *proxytest.Proxy, p *proxytest.Client, key string, n int) (rest func()) {
	t.Helper()
	before := srv.Stats().PinReasons["set (large)"]
	p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s", len(key), key, n, strings.Repeat("x", n-n/2)))
	proxytest.WaitFor(t, "the command to be streamed", func() bool { return srv.Stats().PinReasons["set (large)"] > before })
	return func() { p.Raw(strings.Repeat("x", n/2) + "\r\n") }
}

// The clients together send several times the memory that the proxy may have for all of them. None is closed.
func largeCommandsAreStreamed(t *testing.T, c *redistest.Cluster) {
	const n = 8 << 20 // with six clients twice the memory of all
	srv := proxytest.StartOverCluster(t, c, proxytest.LittleMemory)
	var running sync.WaitGroup
	for i := range 6 {
		p, key := srv.Dial(t), fmt.Sprint("large", i)
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
		t.Errorf("%d clients have been closed; waits for a connection: %d, %d in vain", n, stats.PinWaits, stats.PinTimeouts)
	}
}

// partOfACommand finds a client in CLIENT LIST whose command has come in part.
var partOfACommand = regexp.MustCompile(`\bqbuf=\d{6,}`)

// Of a large command nothing is left to be sent again. If its slot moves, it is refused, and the next one is carried out.
func largeCommandsOfAMovingSlotAreRefused(t *testing.T, c *redistest.Cluster) {
	const n = 6 << 20
	srv := proxytest.StartOverCluster(t, c, proxytest.LittleMemory, proxytest.Patient)
	p, m, key := srv.Dial(t), newMover(t, c), "large"
	slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
	home := m.owner[slot]
	there := (home + 1) % c.Primaries
	p.Script("SET "+key+" old", "+OK")
	rest := announce(t, srv, p, key, n)
	proxytest.WaitFor(t, "the server to have a part of the command", func() bool {
		return partOfACommand.MatchString(c.Nodes[home].Do(t, "CLIENT", "LIST").(string))
	})
	m.move(slot, there)
	rest()
	p.Gets("-TRYAGAIN the slot of the key moves")
	p.Script("GET "+key, "$3\r\nold\r\n")
	awaitOwner(t, srv, slot, c.Nodes[there])
	announce(t, srv, p, key, n)()
	p.Gets("+OK")
	p.Script("BLPOP "+key+" 0.01", "-WRONGTYPE", "STRLEN "+key, fmt.Sprintf(":%d\r\n", n), "DEL "+key, ":1") // as a command that waits
	m.begin(slot, home)                                                                                      // the key does not exist: its server sends clients to the other one
	announce(t, srv, p, key, n)()
	p.Gets("-TRYAGAIN the slot of the key moves")
	m.end(slot, home)
}

// A large command for a dead server is read to its end and refused.
func TestLargeCommandsOfADeadServerAreRefused(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	srv := proxytest.StartOverCluster(t, c, proxytest.LittleMemory)
	key, elsewhere := proxytest.KeyOf(t, c, c.Nodes[0]), proxytest.KeyOf(t, c, c.Nodes[1])
	kill(t, c, c.Nodes[0], srv)
	p := srv.Dial(t)
	for range 2 {
		p.Raw(fmt.Sprintf("*3\r\n$3\r\nSET\r\n$%d\r\n%s\r\n$%d\r\n%s\r\n", len(key), key, 12<<20, strings.Repeat("x", 12<<20)))
	}
	p.Raw(proxytest.Inline("SET " + elsewhere + " x"))
	p.Gets("-CLUSTERDOWN ", "-CLUSTERDOWN ", "+OK")
}
