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

// The commands before the first key of a transaction are kept back. None is missing, whatever it is.
func everyCommandOfATransactionIsKept(t *testing.T, alone *redistest.Server, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	sameAsAlone(t, alone, c, proxies, func(s *proxytest.Side) {
		s.HideHelloID()
		a := s.Client("a")
		for i, key := range []string{"a", "b", "c"} { // at all servers
			for _, script := range []string{
				"UNWATCH|PING|SET KEY 1|GET KEY", "CLIENT GETNAME|CLIENT SETNAME one|CLIENT GETNAME|SET KEY 1", "SET KEY 1|CLIENT GETNAME|CLIENT SETNAME two",
				"NOSUCH x|SET KEY 2|GET KEY", "SET|SET KEY 2", "SET KEY 4|MULTI|GET KEY", "MULTI|SET KEY 4|GET KEY", "PING|MULTI|MULTI|INCR KEY", "MULTI x|SET KEY 4", "MULTI", "SELECT 0|SET KEY 5", "AUTH no no|SET KEY 6", "HELLO 3|SET KEY 7|HELLO 2",
				"SET KEY 7|CLIENT SETINFO LIB-NAME x", "CLUSTER INFO|SET KEY 8|CLUSTER RESET|ASKING|GET KEY", "EVAL return{1} 0|SET KEY 9", "INFO nosuch|SET KEY 10", "COMMAND INFO get|INCR KEY",
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

// The slot of a transaction moves. Nothing of it is carried out, and the client gets no redirection.
func aTransactionEndsWhenItsSlotMoves(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	for engine, srv := range proxies {
		for _, seen := range []bool{false, true} {
			p := srv.Dial(t)
			key := fmt.Sprint("moving", engine, seen)
			slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
			m := newMover(t, c)
			home := m.owner[slot]
			p.Script("SET "+key+" 1", "+OK", "MULTI", "+OK", "UNWATCH", "+QUEUED", "INCR "+key, "+QUEUED", "CLIENT SETNAME joe", "+QUEUED")
			m.move(slot, (home+1)%c.Primaries)
			if seen {
				p.Script("INCR "+key, "-TRYAGAIN ", "INCR {"+key+"}2", "-TRYAGAIN ")
			}
			p.Script("EXEC", "-EXECABORT ", "GET "+key, "$1\r\n1\r\n", "CLIENT GETNAME", "$-1")
			proxytest.WaitFor(t, "a transaction at the new server", func() bool { // a refusal has the view refreshed
				p.Each("MULTI", "INCR "+key)
				return p.Quiet("EXEC") == "*1\r\n:2\r\n"
			})
			m.move(slot, home)
		}
	}
}

// A transaction is at one server. What would concern all of them, or would bind the session to one, is refused, and so is the transaction. Keys of two
// slots are refused even if one server has both slots today.
func nothingConcernsAllServersInATransaction(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	neighbour := neighboursAt(t, c, c.Nodes[0], 2)
	for engine, srv := range proxies {
		for line, code := range map[string]string{
			"CONFIG SET slowlog-max-len 77": "-CROSSSLOT ", "SCRIPT LOAD return{8}": "-CROSSSLOT ", "SCRIPT FLUSH": "-CROSSSLOT ", "FUNCTION FLUSH": "-CROSSSLOT ",
			"ACL SETUSER " + engine + " on": "-CROSSSLOT ", "CLIENT PAUSE 1": "-CROSSSLOT ", "DBSIZE": "-CROSSSLOT ", "FLUSHDB": "-CROSSSLOT ",
			"MGET " + neighbour[0] + " " + neighbour[1]: "-CROSSSLOT ", "GET " + neighbour[1]: "-CROSSSLOT ",
			"CLIENT TRACKING ON": "-ERR ", "MONITOR": "-ERR ", "REPLCONF listening-port 1": "-ERR ", "SUBSCRIBE x": "-ERR ",
		} {
			p := srv.Dial(t)
			p.Script("MULTI", "+OK", "SET "+neighbour[0]+" x", "+QUEUED", line, code, "EXEC", "-EXECABORT ")
			p.Script("MGET a b c", "*3\r\n") // the session is bound to no server
		}
		for _, node := range c.Nodes[:c.Primaries] {
			if users := node.Do(t, "ACL", "USERS").([]any); slices.Contains(users, any(engine)) {
				t.Errorf("%s: a server has the user: %v", engine, users)
			}
			if got := node.Do(t, "CONFIG", "GET", "slowlog-max-len").([]any)[1]; got == "77" {
				t.Errorf("%s: a server has the setting", engine)
			}
		}
	}
}

// Two servers name each other as the owner of a slot for longer than commands wait. No client sees a redirection, and a transaction is over.
func aSlotWithoutAnOwnerIsNoRedirection(t *testing.T, c *redistest.Cluster) {
	proxies := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = 200 * time.Millisecond })
	key, source, target := proxytest.KeyOf(t, c, c.Nodes[0]), c.Nodes[0], c.Nodes[1]
	slot := source.Do(t, "CLUSTER", "KEYSLOT", key)
	var clients []*proxytest.Client
	for _, srv := range proxies {
		for range 4 {
			clients = append(clients, srv.Dial(t))
		}
		clients[len(clients)-1].Script("MULTI", "+OK", "SET "+key+" 1", "+QUEUED")
	}
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

// The server of a transaction refuses MULTI, which has been answered. Nothing behind it runs alone.
func aTransactionThatIsRefusedRunsNot(t *testing.T, c *redistest.Cluster, proxies map[string]*proxytest.Proxy) {
	for engine, srv := range proxies {
		key := proxytest.KeyOf(t, c, c.Nodes[0])
		p := srv.Dial(t)
		p.Script("SET "+key+" before", "+OK")
		c.Nodes[0].Do(t, "ACL", "SETUSER", "default", "-multi")
		p.Raw(proxytest.Inline("MULTI", "PING", "SET "+key+" "+engine, "SET "+key+" alone", "EXEC"))
		p.Gets("+OK", "+QUEUED", "-NOPERM ")
		p.Ends()
		c.Nodes[0].Do(t, "ACL", "SETUSER", "default", "+multi")
		srv.Dial(t).Script("GET "+key, "$6\r\nbefore\r\n", "DEL "+key, ":1")
	}
}

// A long transaction is queued in slices, behind none of which anything is missing.
func aLongTransactionIsWhole(t *testing.T, proxies map[string]*proxytest.Proxy) {
	const n = 2500
	for _, srv := range proxies {
		p := srv.Dial(t)
		for _, key := range []string{"a", "b", "c"} { // at all servers
			p.Raw(proxytest.Inline("SET "+key+" 1", "MULTI") + strings.Repeat("PING\r\n", n) + proxytest.Inline("INCR "+key, "EXEC", "GET "+key))
			want := append(slices.Repeat([]string{"+QUEUED\r\n"}, n+1), "*2501\r\n"+strings.Repeat("+PONG\r\n", n)+":2\r\n", "$1\r\n2\r\n")
			p.Gets(append([]string{"+OK\r\n", "+OK\r\n"}, want...)...)
		}
	}
}
