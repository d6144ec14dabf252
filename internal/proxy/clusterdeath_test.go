package proxy

import (
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A command that comes after the death of its primary waits for the successor, whatever kind of connection it needs.
func TestCommandsAwaitTheSuccessorOfADeadPrimary(t *testing.T) {
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	proxies := startOverCluster(t, c, patient)
	key := "{" + keyOf(t, c, c.Nodes[0]) + "}"
	elsewhere := keyOf(t, c, c.Nodes[1])
	cases := []struct {
		name string
		args []string
		want string // how the reply begins
	}{
		{"a read", []string{"GET", key + "v"}, "$1\r\nx\r\n"},
		{"a write", []string{"INCR", key + "n:"}, ":1\r\n"},
		{"a divided command", []string{"MGET", elsewhere, key + "v"}, "*2\r\n$-1\r\n$1\r\nx\r\n"},
		{"a script", []string{"EVAL", "return redis.call('get', KEYS[1])", "1", key + "v"}, "$1\r\nx\r\n"},
		{"a blocking command", []string{"BLPOP", key + "list", "30"}, "*2\r\n"},
		{"a watch", []string{"WATCH", key + "v"}, "+OK\r\n"},
		{"a shard subscription", []string{"SSUBSCRIBE", key + "channel"}, "*3\r\n$10\r\nssubscribe\r\n"},
		{"TRYLOCK", []string{"TRYLOCK", key + "free:"}, ":"},
		{"LOCK", []string{"LOCK", key + "locked:"}, ":"},
		{"UNLOCK", []string{"UNLOCK", key + "held:"}, ":1\r\n"},
		{"EXTENDLOCK", []string{"EXTENDLOCK", key + "extended:", "PX", "20000"}, ":1\r\n"},
		{"LOCKINFO", []string{"LOCKINFO", key + "known"}, "$-1\r\n"},
		{"a transaction", []string{"MULTI"}, "+OK\r\n"},
		{"all servers", []string{"EXISTS", elsewhere, key + "v"}, ":1\r\n"},
	}
	type client struct {
		p    *peer
		name string
		args []string
		want string
	}
	var clients []client
	seed := dialClient(t, address(eachProxy(proxies)[0]))
	seed.quiet("SET", key+"v", "x")
	for range proxies {
		seed.quiet("RPUSH", key+"list", "a")
	}
	for engine, srv := range proxies {
		for _, one := range cases {
			p := dialClient(t, address(srv))
			args := slices.Clone(one.args)
			if len(args) > 1 && strings.HasSuffix(args[1], ":") {
				args[1] += engine
			}
			if one.name == "UNLOCK" || one.name == "EXTENDLOCK" {
				integer(t, p.quiet("LOCK", args[1]))
			}
			clients = append(clients, client{p, one.name, args, one.want})
		}
	}
	redistest.Eventually(t, patience, "the replica", func() bool { return c.Nodes[0].Do(t, "WAIT", 1, 1000).(int64) == 1 })
	before := map[string]int64{}
	for engine, srv := range proxies {
		_, before[engine] = srv.shared.Upstream.LaneEvents()
	}
	c.Nodes[0].Kill()
	for engine, srv := range proxies {
		redistest.Eventually(t, patience, "the proxy to notice", func() bool {
			_, lost := srv.shared.Upstream.LaneEvents()
			return lost > before[engine]
		})
	}
	var running sync.WaitGroup
	for _, one := range clients {
		running.Go(func() {
			one.p.send(one.args...)
			if got, err := one.p.frame(); err != nil || !strings.HasPrefix(got, one.want) {
				t.Errorf("%s: %q, %v", one.name, got, err)
			}
			if one.name != "a transaction" {
				return
			}
			if got := one.p.quiet("GET", key+"v"); got != "+QUEUED\r\n" {
				t.Errorf("in a transaction: %q", got)
			}
			if got := one.p.quiet("EXEC"); got != "*1\r\n$1\r\nx\r\n" {
				t.Errorf("EXEC: %q", got)
			}
		})
	}
	running.Wait()
}
