package cluster

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// The commands of a transaction are queued by the proxy. None is missing, whatever it is.
func everyCommandOfATransactionIsKept(t *testing.T, alone *redistest.Server, c *redistest.Cluster, srv *proxytest.Proxy) {
	sameAsAlone(t, alone, c, srv, func(s *proxytest.Side) {
		s.HideHelloID()
		a := s.Client("a")
		for i, key := range []string{"a", "b", "c"} { // at all servers
			for _, script := range []string{
				"UNWATCH|PING|SET KEY 1|GET KEY", "NOSUCH x|SET KEY 2|GET KEY", "SET|SET KEY 2", "SET KEY 4|MULTI|GET KEY", "MULTI|SET KEY 4|GET KEY",
				"PING|MULTI|MULTI|INCR KEY", "MULTI x|SET KEY 4", "MULTI", "WATCH x|INCR KEY", "EXEC x|INCR KEY", "DISCARD x|INCR KEY", "EVAL return{1} 0|SET KEY 9",
				"COMMAND INFO get|INCR KEY", "SET KEY x|INCR KEY|LPUSH KEY x|GET KEY", "BLPOP {KEY}list 0|SET KEY 1", "XREAD BLOCK 0 STREAMS {KEY}s $|SET KEY 1",
			} {
				words := "MULTI|" + strings.ReplaceAll(script, "KEY", key) + "|EXEC|GET " + key + "|CLIENT GETNAME|PING"
				list := strings.Split(words, "|")
				if i%2 == 0 {
					for _, line := range list {
						a.Do(strings.Fields(line)...)
					}
					continue
				}
				a.Raw(proxytest.Inline(list...))
				a.Expect(len(list))
			}
		}
	})
}

// The slot of a transaction moves, or has moved in part. The transaction is carried out once, and the client is told nothing of it.
func aTransactionFollowsItsSlot(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	for _, n := range []int{1, mostQueued} { // the larger one has a connection of its own
		slot, keys := tagged(t, c, fmt.Sprint("moving", n), 2)
		one, two := keys[0], keys[1]
		m := newMover(t, c)
		p := srv.Dial(t)
		run := func(want int) {
			t.Helper()
			p.Script("MULTI", "+OK", "PING", "+QUEUED")
			for range n {
				p.Script("INCR "+one, "+QUEUED")
			}
			p.Script("INCR "+two, "+QUEUED")
			got := p.Quiet("EXEC")
			if first := fmt.Sprintf("*%d\r\n+PONG\r\n:%d\r\n", n+2, (want-1)*n+1); !strings.HasPrefix(got, first) || !strings.HasSuffix(got, fmt.Sprintf("\r\n:%d\r\n", want)) {
				t.Errorf("transaction %d: %q", want, got)
			}
		}
		run(1)
		home := m.owner[slot]
		to := (home + 1) % c.Primaries
		way := m.to(slot, to)
		way.Begin()
		run(2) // all keys are at the old server
		migrate(t, way, one)
		p.Script("MULTI", "+OK", "INCR "+one, "+QUEUED")
		p.Script("INCR "+two, "+QUEUED")
		p.Send("EXEC") // refused until both keys are at one server
		proxytest.WaitFor(t, "a refused transaction", func() bool { return srv.Shared().Upstream.Redirections()["later"] > 0 })
		migrate(t, way, two)
		p.Gets(fmt.Sprintf("*2\r\n:%d\r\n:3\r\n", 2*n+1))
		p.Script("DECRBY "+one+" "+fmt.Sprint(1-n), fmt.Sprintf(":%d\r\n", 3*n))
		run(4) // all keys are at the new server, which does not own the slot
		m.end(slot, to)
		run(5)
		m.move(slot, home)
		run(6)
	}
}

// mostQueued is how many commands of a transaction travel on a connection that is shared.
const mostQueued = 256

// A transaction is at one server. What would concern all of them, or would bind the session to one, is refused, and so is the transaction. Keys of two
// slots are refused even if one server has both slots today.
func nothingConcernsAllServersInATransaction(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	neighbour := neighboursAt(t, c, c.Nodes[0], 2)
	for line, code := range map[string]string{
		"CONFIG SET slowlog-max-len 77": "-CROSSSLOT ", "SCRIPT LOAD return{8}": "-CROSSSLOT ", "SCRIPT FLUSH": "-CROSSSLOT ", "FUNCTION FLUSH": "-CROSSSLOT ",
		"ACL SETUSER nobody on": "-CROSSSLOT ", "CLIENT PAUSE 1": "-CROSSSLOT ", "DBSIZE": "-CROSSSLOT ", "FLUSHDB": "-CROSSSLOT ",
		"MGET " + neighbour[0] + " " + neighbour[1]: "-CROSSSLOT ", "GET " + neighbour[1]: "-CROSSSLOT ",
		"CLIENT TRACKING ON": "-ERR ", "MONITOR": "-ERR ", "REPLCONF listening-port 1": "-ERR ", "SUBSCRIBE x": "-ERR ", "SELECT 0": "-ERR ", "AUTH x": "-ERR ",
		"HELLO 3": "-ERR ", "CLIENT SETNAME x": "-ERR ", "CLIENT ID": "-ERR ", "INFO": "-ERR ", "CLUSTER INFO": "-ERR ", "LOCK l": "-ERR ", "WAIT 0 0": "-ERR ",
	} {
		p := srv.Dial(t)
		p.Script("MULTI", "+OK", "SET "+neighbour[0]+" x", "+QUEUED", line, code, "EXEC", "-EXECABORT ")
		p.Script("MGET a b c", "*3\r\n") // the session is bound to no server
	}
	for _, node := range c.Nodes[:c.Primaries] {
		if users := node.Do(t, "ACL", "USERS").([]any); slices.Contains(users, any("nobody")) {
			t.Errorf("a server has the user: %v", users)
		}
		if got := node.Do(t, "CONFIG", "GET", "slowlog-max-len").([]any)[1]; got == "77" {
			t.Errorf("a server has the setting")
		}
	}
}

// Two servers name each other as the owner of a slot for longer than commands wait. No client sees a redirection, and a transaction is over.
func aSlotWithoutAnOwnerIsNoRedirection(t *testing.T, c *redistest.Cluster) {
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = 200 * time.Millisecond })
	key, source, target := proxytest.KeyOf(t, c, c.Nodes[0]), c.Nodes[0], c.Nodes[1]
	slot := source.Do(t, "CLUSTER", "KEYSLOT", key)
	var clients []*proxytest.Client
	for range 4 {
		clients = append(clients, srv.Dial(t))
	}
	clients[len(clients)-1].Script("MULTI", "+OK", "SET "+key+" 1", "+QUEUED")
	source.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ID(target)) // nobody else is told
	defer c.AwaitReady()
	defer source.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ID(source))
	var running sync.WaitGroup
	for i, p := range clients {
		line := []string{"GET " + key, "BLPOP " + key + " 9", "WATCH " + key, "EXEC"}[i%4]
		running.Go(func() {
			want := "-CLUSTERDOWN "
			if line == "EXEC" {
				want = "-EXECABORT "
			}
			p.Script(line, want, "PING", "+PONG")
		})
	}
	running.Wait()
}

// neighboursAt are keys of different slots that a node serves.
func neighboursAt(t testing.TB, c *redistest.Cluster, node *redistest.Server, n int) (keys []string) {
	seen := map[int]bool{}
	first := proxytest.KeyOf(t, c, node)
	for i := 0; len(keys) < n; i++ {
		key := first + strings.Repeat("x", i)
		if slot := int(node.Do(t, "CLUSTER", "KEYSLOT", key).(int64)); !seen[slot] && c.Owner(slot) == node {
			seen[slot] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// Redis refuses MULTI or a command in it, by the rights of the user. Nothing runs.
func aTransactionThatIsRefusedRunsNot(t *testing.T, c *redistest.Cluster, srv *proxytest.Proxy) {
	acl := func(rule string) {
		for _, node := range c.Nodes[:c.Primaries] {
			node.Do(t, "ACL", "SETUSER", "default", rule)
		}
	}
	key := proxytest.KeyOf(t, c, c.Nodes[0])
	p := srv.Dial(t)
	p.Script("SET "+key+" before", "+OK")
	acl("-append")
	for range 2 { // rights may have changed since the last transaction
		p.Script("MULTI", "+OK", "SET "+key+" x", "+QUEUED", "APPEND "+key+" x", "+QUEUED", "EXEC", "-EXECABORT Transaction discarded because of: NOPERM ")
	}
	acl("-multi")
	p.Script("MULTI", "+OK", "GET "+key, "+QUEUED")
	p.Send("EXEC")
	p.Ends()
	p = srv.Dial(t)
	p.Script("MULTI", "-NOPERM ", "GET "+key, "$6\r\nbefore\r\n", "EXEC", "-ERR EXEC without MULTI")
	acl("+multi")
	acl("+append")
	acl("-exec")
	p.Script("MULTI", "+OK", "SET "+key+" x", "+QUEUED", "EXEC", "-EXECABORT ", "MULTI", "+OK", "SET "+key+" x", "+QUEUED", "DISCARD", "+OK")
	acl("+exec")
	p.Script("GET "+key, "$6\r\nbefore\r\n", "DEL "+key, ":1")
}

// A long transaction is on a connection of its own. Nothing is missing in it.
func aLongTransactionIsWhole(t *testing.T, srv *proxytest.Proxy) {
	const n = 2500
	p := srv.Dial(t)
	for _, key := range []string{"a", "b", "c"} { // at all servers
		p.Raw(proxytest.Inline("SET "+key+" 1", "MULTI") + strings.Repeat("PING\r\n", n) + proxytest.Inline("INCR "+key, "EXEC", "GET "+key))
		want := append(slices.Repeat([]string{"+QUEUED\r\n"}, n+1), "*2501\r\n"+strings.Repeat("+PONG\r\n", n)+":2\r\n", "$1\r\n2\r\n")
		p.Gets(append([]string{"+OK\r\n", "+OK\r\n"}, want...)...)
	}
}
