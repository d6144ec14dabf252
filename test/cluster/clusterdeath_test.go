package cluster

import (
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream"
	"github.com/lockproxy/lockproxy/internal/upstream/lanes"
)

// A command that comes after the death of its primary waits for the successor, whatever kind of connection it needs.
func TestCommandsAwaitTheSuccessorOfADeadPrimary(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1, "--cluster-require-full-coverage", "no")
	srv := proxytest.StartOverCluster(t, c, proxytest.Patient)
	key := "{" + proxytest.KeyOf(t, c, c.Nodes[0]) + "}"
	elsewhere := proxytest.KeyOf(t, c, c.Nodes[1])
	cases := []struct {
		name string
		args []string
		want string // how the reply begins
	}{
		{"a read", []string{"GET", key + "v"}, "$1\r\nx\r\n"},
		{"a write", []string{"INCR", key + "n"}, ":1\r\n"},
		{"a divided command", []string{"MGET", elsewhere, key + "v"}, "*2\r\n$-1\r\n$1\r\nx\r\n"},
		{"a script", []string{"EVAL", "return redis.call('get', KEYS[1])", "1", key + "v"}, "$1\r\nx\r\n"},
		{"a blocking command", []string{"BLPOP", key + "list", "30"}, "*2\r\n"},
		{"a watch", []string{"WATCH", key + "v"}, "+OK\r\n"},
		{"a shard subscription", []string{"SSUBSCRIBE", key + "channel"}, "*3\r\n$10\r\nssubscribe\r\n"},
		{"TRYLOCK", []string{"TRYLOCK", key + "free"}, ":"},
		{"LOCK", []string{"LOCK", key + "locked"}, ":"},
		{"UNLOCK", []string{"UNLOCK", key + "held"}, ":1\r\n"},
		{"EXTENDLOCK", []string{"EXTENDLOCK", key + "extended", "PX", "20000"}, ":1\r\n"},
		{"LOCKINFO", []string{"LOCKINFO", key + "known"}, "$-1\r\n"},
		{"a transaction", []string{"MULTI"}, "+OK\r\n"},
		{"all servers", []string{"EXISTS", elsewhere, key + "v"}, ":1\r\n"},
	}
	var clients []*proxytest.Client
	seed := srv.Dial(t)
	seed.Quiet("SET", key+"v", "x")
	seed.Quiet("RPUSH", key+"list", "a")
	for _, one := range cases {
		p := srv.Dial(t)
		p.Label += ": " + one.name
		if one.name == "UNLOCK" || one.name == "EXTENDLOCK" {
			proxytest.Integer(t, p.Quiet("LOCK", one.args[1]))
		}
		clients = append(clients, p)
	}
	c.Nodes[0].AwaitReplicas(t, 1)
	kill(t, c, c.Nodes[0], srv)
	var running sync.WaitGroup
	for i, one := range cases {
		running.Go(func() {
			clients[i].Send(one.args...)
			clients[i].Gets(one.want)
			if one.name == "a transaction" {
				clients[i].Script("GET "+key+"v", "+QUEUED", "EXEC", "*1\r\n$1\r\nx\r\n")
			}
		})
	}
	running.Wait()
}

// kill kills a server, and returns when no proxy takes a connection to it for open any more. A command that is sent on one before may have run, as far as
// is known.
func kill(t *testing.T, c *redistest.Cluster, node *redistest.Server, srv *proxytest.Proxy) {
	t.Helper()
	node.Kill()
	proxytest.WaitFor(t, "the proxy to notice", func() bool {
		up, id := srv.Shared().Upstream, upstream.Node(c.ID(node))
		return up.Connections().To(node.Addr()) == 0 && !slices.ContainsFunc(up.Lanes.List(), func(l lanes.Status) bool { return l.At == id && l.Up })
	})
}

// No command waits for longer than the limit if a dead primary has no successor.
func TestCommandsAwaitASuccessorForALimitedTime(t *testing.T) {
	t.Parallel()
	const limit = time.Second
	c := redistest.StartCluster(t, 3, 0, "--cluster-require-full-coverage", "no")
	srv := proxytest.StartOverCluster(t, c, func(o *proxy.Options) { o.Upstream.FailoverWait = limit })
	key, elsewhere := "{"+proxytest.KeyOf(t, c, c.Nodes[0])+"}", "{"+proxytest.KeyOf(t, c, c.Nodes[1])+"}"
	kill(t, c, c.Nodes[0], srv)
	var running sync.WaitGroup
	for _, args := range [][]string{{"GET", key}, {"WATCH", key}, {"BLPOP", key, "30"}, {"EVAL", "return 1", "1", key}} {
		p := srv.Dial(t)
		running.Go(func() {
			begin := time.Now()
			p.Send(args...)
			if got, err := p.Frame(); !strings.HasPrefix(got, "-CLUSTERDOWN ") || time.Since(begin) < limit {
				t.Errorf("%q: %q, %v after %v", args, got, err, time.Since(begin))
			}
		})
	}
	p := srv.Dial(t)
	running.Go(func() {
		p.Script("MULTI", "+OK", "SET "+key+" x", "+QUEUED", "EXEC", "-EXECABORT Transaction discarded because of: CLUSTERDOWN ", "PING", "+PONG")
	})
	// Commands for all servers say that one is missing. Client libraries begin with an INFO, to use the others.
	for line, want := range map[string]string{"DBSIZE": "-CLUSTERDOWN ", "KEYS *": "-CLUSTERDOWN ", "CONFIG SET slowlog-max-len 128": "-CLUSTERDOWN partly carried out", "INFO": "$", "SET " + elsewhere + " x": "+OK"} {
		p := srv.Dial(t)
		running.Go(func() {
			p.Script(line, want)
		})
	}
	running.Wait()
}
