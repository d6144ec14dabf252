package blackbox

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// SCRIPT KILL and FUNCTION KILL get through although others wait for what they end.
func TestKillOvertakesABusyScript(t *testing.T) {
	t.Parallel()
	b := newBench(t, "--busy-reply-threshold", "50")
	b.both(t, func(s *proxytest.Side, proto int) {
		a, c := s.Speaking("a", proto), s.Speaking("c", proto)
		c.Do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() while true do end end)")
		for _, run := range [][2]string{{`EVAL "while true do end" 0`, "SCRIPT KILL"}, {"FCALL f 0", "FUNCTION KILL"}} {
			a.Raw(proxytest.Inline(run[0]))
			proxytest.WaitFor(t, "the script to be killed", func() bool { return c.Quiet(strings.Fields(run[1])...) == "+OK\r\n" })
			a.Expect(1)
			c.Do("GET", "k")
		}
	})
}

// WAIT counts the replicas that have the client's own writes, whichever connection they went over.
func TestWaitMeasuresTheSessionsOwnWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	replica := redistest.StartReplica(t, b.Redis)
	wait := func(s *proxytest.Side, c *proxytest.Client) {
		replica.Continue()
		c.Each("SET k v", "WAIT 1 10000")
		replica.Pause()
		c.Each("SET k w", "WAIT 1 50", "WAIT 0 50")
		c.Together("SET k x", "WAIT 1 50", "MULTI", "SET k y", "WAIT 1 50", "EXEC", "WAIT 1 50")
		replica.Continue()
		c.Each("SET k z", "WAIT 1 10000")
	}
	b.both(t, func(s *proxytest.Side, proto int) { wait(s, s.Speaking("a", proto)) })
	t.Run("by a user who may not PING", func(t *testing.T) {
		b.Redis.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-ping")
		b.compare(t, b.Proxy, func(s *proxytest.Side) {
			c := s.Client("bob")
			c.Do("AUTH", "bob", "pw")
			wait(s, c)
		})
	})
}

// A redis-server takes the proxy for its master: the replication stream passes as it is, in both directions.
func TestReplicaOfTheProxy(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	srv.Redis.Do(t, "SET", "before", "\r\n$-1\r\n")
	_, port, _ := strings.Cut(srv.Addr(), ":")
	replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
	proxytest.WaitFor(t, "the replica's copy", func() bool { return replica.Do(t, "GET", "before") == "\r\n$-1\r\n" })
	for i := range 1000 {
		srv.Redis.Do(t, "SET", "k"+strconv.Itoa(i), strings.Repeat("x", i))
	}
	proxytest.WaitFor(t, "the last write at the replica", func() bool {
		return replica.Do(t, "GET", "k999") == strings.Repeat("x", 999)
	})
	srv.Redis.AwaitReplicas(t, 1) // it acknowledges through the proxy
}

// There may be many commands behind one that waits. They are taken in parts, and all are answered.
func TestManyCommandsBehindOneThatWaits(t *testing.T) {
	t.Parallel()
	plainAndTLS(t, func(t *testing.T, dial func(*proxytest.Proxy) *proxytest.Client) {
		const n = 50_000
		srv := proxytest.Start(t, redistest.Start(t), proxytest.WithTLS)
		dial(srv).Do("LOCK", "held")
		for _, first := range []string{"LOCK held WAIT 50", "BLPOP nothing 0.05", "MULTI", "CLIENT REPLY OFF"} {
			c := dial(srv)
			go func() { // Redis answers while the client writes
				_, _ = io.WriteString(c.Conn, proxytest.Inline(first)+strings.Repeat(proxytest.Inline("PING", ""), n)+proxytest.Inline("CLIENT REPLY ON", "EXEC"))
			}()
			want, got := n+3, 0
			if first == "CLIENT REPLY OFF" {
				want = 2
			}
			for ; got < want; got++ {
				if b, err := c.LateFrame(); err != nil { // with CLIENT REPLY OFF nothing comes before all are read
					t.Fatalf("%s: after %d replies: %q, %v", first, got, b, err)
				}
			}
			c.HalfClose()
			if b, err := c.Frame(); err == nil {
				t.Errorf("%s: one more reply: %q", first, b)
			}
		}
	})
}
