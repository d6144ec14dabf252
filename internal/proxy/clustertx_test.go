package proxy

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A transaction that begins at another server than that of its first key is the same transaction there: no command is missing, whatever it is.
func everyCommandOfATransactionMoves(t *testing.T, alone *redistest.Server, c *redistest.Cluster, proxies map[string]*Server) {
	sameAsAlone(t, alone, c, proxies, func(s *side) {
		s.hideHelloID()
		a := s.client("a")
		for i, key := range []string{"a", "b", "c"} { // at all servers, so that MULTI begins at others
			for _, script := range []string{
				"UNWATCH|PING|SET KEY 1|GET KEY", "CLIENT GETNAME|CLIENT SETNAME one|CLIENT GETNAME|SET KEY 1", "SET KEY 1|CLIENT GETNAME|CLIENT SETNAME two",
				"WAIT 0 0|SET KEY 1", "NOSUCH x|SET KEY 2|GET KEY", "SET|SET KEY 2", "PING|MULTI|SET KEY 3", "SET KEY 4|MULTI|GET KEY", "SELECT 0|SET KEY 5", "AUTH no no|SET KEY 6", "HELLO 3|SET KEY 7|HELLO 2",
				"CLIENT SETINFO LIB-NAME x|SET KEY 7", "CLUSTER INFO|SET KEY 8|CLUSTER RESET|ASKING|GET KEY", "EVAL return{1} 0|SET KEY 9", "INFO nosuch|SET KEY 10", "COMMAND INFO get|INCR KEY",
			} {
				words := "MULTI|" + strings.ReplaceAll(script, "KEY", key) + "|EXEC|GET " + key + "|CLIENT GETNAME|PING"
				list := strings.Split(words, "|")
				if i%2 == 0 {
					for _, line := range list {
						a.do(strings.Fields(line)...)
					}
					continue
				}
				a.raw(inline(list...))
				a.expect(len(list))
			}
		}
	})
}

// The slot of a transaction moves before EXEC. All that has been queued is carried out at its new server.
func aTransactionFollowsItsSlot(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		p := dialClient(t, address(srv))
		key := "moving" + engine
		slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
		m := newMover(t, c)
		home := m.owner[slot]
		defer m.move(slot, home)
		p.script("SET "+key+" 1", "+OK", "MULTI", "+OK", "UNWATCH", "+QUEUED", "INCR "+key, "+QUEUED", "CLIENT SETNAME joe", "+QUEUED", "CLIENT GETNAME", "+QUEUED")
		m.move(slot, (home+1)%c.Primaries)
		p.script("INCR "+key, "+QUEUED")
		if got, want := p.quiet("EXEC"), "*5\r\n+OK\r\n:2\r\n+OK\r\n$3\r\njoe\r\n:3\r\n"; got != want {
			t.Errorf("%s: EXEC: %q, want %q", engine, got, want)
		}
		if got := p.quiet("CLIENT", "GETNAME"); got != "$3\r\njoe\r\n" {
			t.Errorf("%s: the name of the session: %q", engine, got)
		}
	}
}

// A transaction is at one server. What would concern all of them, or would bind the session to one, is refused, and so is the transaction. Keys of two
// slots are refused even if one server has both slots today.
func nothingConcernsAllServersInATransaction(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	neighbour := neighboursAt(t, c, c.Nodes[0], 2)
	for engine, srv := range proxies {
		for line, code := range map[string]string{
			"CONFIG SET slowlog-max-len 77": "-CROSSSLOT ", "SCRIPT LOAD return{8}": "-CROSSSLOT ", "SCRIPT FLUSH": "-CROSSSLOT ", "FUNCTION FLUSH": "-CROSSSLOT ",
			"ACL SETUSER " + engine + " on": "-CROSSSLOT ", "CLIENT PAUSE 1": "-CROSSSLOT ", "DBSIZE": "-CROSSSLOT ", "FLUSHDB": "-CROSSSLOT ",
			"MGET " + neighbour[0] + " " + neighbour[1]: "-CROSSSLOT ", "GET " + neighbour[1]: "-CROSSSLOT ",
			"CLIENT TRACKING ON": "-ERR ", "MONITOR": "-ERR ", "REPLCONF listening-port 1": "-ERR ", "SUBSCRIBE x": "-ERR ",
		} {
			p := dialClient(t, address(srv))
			p.script("MULTI", "+OK", "SET "+neighbour[0]+" x", "+QUEUED", line, code, "EXEC", "-EXECABORT ")
			if got := p.quiet("MGET", "a", "b", "c"); !strings.HasPrefix(got, "*3\r\n") { // the session is bound to no server
				t.Errorf("%s: behind %s: %q", engine, line, got)
			}
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
	proxies := startOverCluster(t, c, func(o *Options) { o.Upstream.FailoverWait = 200 * time.Millisecond })
	key, source, target := keyOf(t, c, c.Nodes[0]), c.Nodes[0], c.Nodes[1]
	slot := source.Do(t, "CLUSTER", "KEYSLOT", key)
	var clients []*peer
	for _, srv := range proxies {
		for range 4 {
			clients = append(clients, dialClient(t, address(srv)))
		}
		clients[len(clients)-1].script("MULTI", "+OK", "SET "+key+" 1", "+QUEUED")
	}
	source.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ID(target)) // nobody else is told
	defer c.AwaitReady()
	defer source.Do(t, "CLUSTER", "SETSLOT", slot, "NODE", c.ID(source))
	var running sync.WaitGroup
	for i, p := range clients {
		line := []string{"GET " + key, "BLPOP " + key + " 9", "WATCH " + key, "EXEC"}[i%4]
		running.Go(func() {
			if got := p.quiet(strings.Fields(line)...); !strings.HasPrefix(got, "-NOUPSTREAM ") {
				t.Errorf("%s: %q", line, got)
			}
			if got := p.quiet("PING"); got != "+PONG\r\n" {
				t.Errorf("behind %s: %q", line, got)
			}
		})
	}
	running.Wait()
}

// neighboursAt are keys of different slots that a node serves.
func neighboursAt(t testing.TB, c *redistest.Cluster, node *redistest.Server, n int) (keys []string) {
	seen := map[int]bool{}
	first := keyOf(t, c, node)
	for i := 0; len(keys) < n; i++ {
		key := first + strings.Repeat("x", i)
		if slot := int(node.Do(t, "CLUSTER", "KEYSLOT", key).(int64)); !seen[slot] && c.Owner(slot) == node {
			seen[slot] = true
			keys = append(keys, key)
		}
	}
	return keys
}

// The server at which a transaction goes on refuses MULTI. Nothing of the transaction runs alone there.
func aTransactionThatCannotFollowItsSlotRunsNot(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	for engine, srv := range proxies {
		key := "refused" + engine
		slot := int(c.Nodes[0].Do(t, "CLUSTER", "KEYSLOT", key).(int64))
		m := newMover(t, c)
		home := m.owner[slot]
		next := c.Nodes[(home+1)%c.Primaries]
		p := dialClient(t, address(srv))
		p.script("SET "+key+" before", "+OK", "MULTI", "+OK", "SET "+key+" alone", "+QUEUED")
		next.Do(t, "ACL", "SETUSER", "default", "-multi")
		m.move(slot, (home+1)%c.Primaries)
		p.script("EXEC", "-NOPERM ", "GET "+key, "$6\r\nbefore\r\n")
		next.Do(t, "ACL", "SETUSER", "default", "+multi")
		m.move(slot, home)
	}
}

// A server from which a transaction moves away does not let the user end it there. No other client gets into it.
func aTransactionThatCannotBeDiscardedIsLeft(t *testing.T, c *redistest.Cluster, proxies map[string]*Server) {
	here, there := keyOf(t, c, c.Nodes[0]), keyOf(t, c, c.Nodes[1])
	c.Nodes[0].Do(t, "ACL", "SETUSER", "default", "-discard")
	defer c.Nodes[0].Do(t, "ACL", "SETUSER", "default", "+discard")
	for _, srv := range proxies {
		p, other := dialClient(t, address(srv)), dialClient(t, address(srv))
		for range 5 { // the pool may have other connections
			p.script("GET "+here, "", "MULTI", "+OK", "SET "+there+" x", "+QUEUED", "EXEC", "*1\r\n+OK\r\n")
			other.script("GET "+here, "", "MULTI", "+OK", "GET "+here, "+QUEUED", "EXEC", "*1\r\n")
		}
	}
}

// A long transaction is queued again in slices, behind none of which anything is missing.
func aLongTransactionMoves(t *testing.T, proxies map[string]*Server) {
	const n = 2500
	for engine, srv := range proxies {
		p := dialClient(t, address(srv))
		for _, key := range []string{"a", "b", "c"} { // at all servers, so that MULTI begins at others
			p.raw(inline("SET "+key+" 1", "MULTI") + strings.Repeat("PING\r\n", n) + inline("INCR "+key, "EXEC", "GET "+key))
			want := append(slices.Repeat([]string{"+QUEUED\r\n"}, n+1), "*2501\r\n"+strings.Repeat("+PONG\r\n", n)+":2\r\n", "$1\r\n2\r\n")
			for i, want := range append([]string{"+OK\r\n", "+OK\r\n"}, want...) {
				if got, err := p.frame(); got != want {
					t.Fatalf("%s: reply %d: %.60q, %v, want %.60q", engine, i, got, err, want)
				}
			}
		}
	}
}
