package transparency

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestBlockingCommandsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]func(s *proxytest.Side, proto int){
		"served at once": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("RPUSH l 1 2 3 4 5", "BLPOP l 0", "BRPOP l 0", "BLMOVE l m LEFT RIGHT 0", "BRPOPLPUSH l m 0", "BLMPOP 0 2 x l LEFT COUNT 9",
				"ZADD z 1 a 2 b 3 c", "BZPOPMIN z 0", "BZPOPMAX z 0", "BZMPOP 0 1 z MIN", "XADD s 1-1 f v", "XREAD STREAMS s 0", "XREAD BLOCK 0 STREAMS s 0", "PING")
		},
		"timeout": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("BLPOP l 0.02", "BLMOVE l m LEFT RIGHT 0.02", "BLMPOP 0.02 1 l LEFT", "BZPOPMIN z 0.02", "BZMPOP 0.02 1 z MIN", "XREAD BLOCK 20 STREAMS s $",
				"XGROUP CREATE s g $ MKSTREAM", "XREADGROUP GROUP g me BLOCK 20 STREAMS s >", "WAIT 1 20", "PING")
		},
		"refused": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("SET k v", "BLPOP k 0", "BLPOP l -1", "BLPOP l x", "BLPOP l", "BLMOVE k l LEFT RIGHT 0", "XREAD BLOCK x STREAMS s $", "XREAD BLOCK 0 STREAMS k $", "XREAD BLOCK 0", "WAIT x 0", "WAIT 0", "WAITAOF 0 0 0", "PING")
		},
		"woken, and others go on meanwhile": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Raw(proxytest.Inline("SET k before", "BLPOP l 0", "GET k"))
			s.AwaitBlocked(1)
			b.Each("SET k after", "RPUSH l x")
			a.Expect(3)
		},
		"in order of asking": func(s *proxytest.Side, proto int) {
			var waiters []*proxytest.Client
			for i := range 5 {
				w := s.Speaking("w"+strconv.Itoa(i), proto)
				w.Send("BLPOP", "l", "0")
				s.AwaitBlocked(i + 1)
				waiters = append(waiters, w)
			}
			b := s.Speaking("b", proto)
			b.Do("RPUSH", "l", "0", "1", "2", "3", "4")
			for _, w := range waiters {
				w.Expect(1)
			}
		},
		"a client that hangs up is served nothing": func(s *proxytest.Side, proto int) {
			for _, end := range []func(*proxytest.Client){func(c *proxytest.Client) { _ = c.Conn.Close() }, (*proxytest.Client).HalfClose} {
				a, b := s.Speaking("a", proto), s.Speaking("b", proto)
				a.Send("BLPOP", "l", "0")
				s.AwaitBlocked(1)
				end(a)
				s.AwaitBlocked(0)
				b.Each("RPUSH l x", "LPOP l")
			}
		},
		"what comes before the end of a client is executed": func(s *proxytest.Side, proto int) {
			b := s.Speaking("b", proto)
			for _, lines := range [][]string{
				{"SET k 1", "MULTI", "INCR k", "EXEC", "GET k"},
				{"RPUSH l a", "BLPOP l 0", "GET k"},
				{"WATCH k", "MULTI", "SET k 2"},
				{"SUBSCRIBE a", "PING"},
				{"SELECT 1", "SET k one", "SELECT 0", "GET k"},
				{"BLPOP nosuch 0", "SET k 3"},
				{"MULTI", "BLPOP nosuch 0", "SET k 4", "EXEC"},
				{"CLIENT REPLY OFF", "SET k 5", "CLIENT REPLY ON", "GET k"},
				{"MONITOR"},
				{"WAIT 0 0", "GET k"},
				{"GET k", "GET"},
				{"RPUSH l a", "BLPOP l 0", "SELECT 1", "SET k other", "SELECT 0", "GET k"},
				{"RPUSH l a b", "BLPOP l 0", "CLIENT SETNAME x", "BLPOP l 0", "CLIENT GETNAME"},
				{"RPUSH l a", "BLPOP l 0", "CLIENT REPLY SKIP", "SET k 6", "GET k", "QUIT"},
				{"BLPOP nosuch 0", "SELECT 0", "SET k 7"},
				{"BLPOP nosuch 0", "CLIENT SETNAME x", "SET k 8"},
				{"MULTI", "BLPOP nosuch 0", "CLIENT GETNAME", "SET k 9", "EXEC", "GET k"},
				{"MULTI", "SET k 10", "EXEC", "RPUSH l a", "BLPOP l 0", "RESET", "GET k"},
				{"WAIT 0 0", "SELECT 0", "GET k"},
				{"NOSUCH", "SELECT 0", "GET k"},
			} {
				a := s.Speaking("a", proto)
				a.Raw(proxytest.Inline(lines...) + "*2\r\n$3\r\nGET\r\n") // and the start of another
				a.HalfClose()
				a.End()
				b.Do("GET", "k")
			}
		},
		"unblocked by another client": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			for _, how := range []string{"TIMEOUT", "ERROR"} {
				id := proxytest.Integer(s.T, a.Quiet("CLIENT", "ID"))
				a.Send("BLPOP", "l", "0")
				s.AwaitBlocked(1)
				b.Do("CLIENT", "UNBLOCK", strconv.Itoa(id), how)
				a.Expect(1)
				b.Do("CLIENT", "UNBLOCK", strconv.Itoa(id))
			}
			a.Do("PING")
		},
		"killed by another client": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			id := proxytest.Integer(s.T, a.Quiet("CLIENT", "ID"))
			a.Send("BLPOP", "l", "0")
			s.AwaitBlocked(1)
			b.Do("CLIENT", "KILL", "ID", strconv.Itoa(id))
			a.End()
			b.Each("RPUSH l x", "LPOP l")
		},
		"key of the wrong type appears": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Send("BLPOP", "l", "0")
			s.AwaitBlocked(1)
			b.Each("SET l string", "DEL l", "RPUSH l x")
			a.Expect(1)
		},
		"streams": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Send("XREAD", "COUNT", "2", "BLOCK", "0", "STREAMS", "s", "t", "$", "$")
			s.AwaitBlocked(1)
			b.Do("XADD", "t", "5-5", "f", "v")
			a.Expect(1)
			b.Do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
			a.Send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">")
			s.AwaitBlocked(1)
			b.Do("XADD", "s", "6-6", "f", "v")
			a.Expect(1)
			a.Send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">")
			s.AwaitBlocked(1)
			b.Do("XGROUP", "DESTROY", "s", "g")
			a.Expect(1)
		},
		"moved between databases": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Do("SELECT", "2")
			a.Send("BLPOP", "l", "0")
			s.AwaitBlocked(1)
			b.Each("RPUSH l x", "MOVE l 2")
			a.Expect(1)
			b.Each("RPUSH l y", "SWAPDB 0 2")
			a.Do("LRANGE", "l", "0", "-1")
			b.Do("LRANGE", "l", "0", "-1")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Both(t, script) })
	}
}

// SCRIPT KILL and FUNCTION KILL get through although others wait for what they end.
func TestKillOvertakesABusyScript(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t, "--busy-reply-threshold", "50")
	b.Both(t, func(s *proxytest.Side, proto int) {
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
	b := proxytest.NewBench(t)
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
	b.Both(t, func(s *proxytest.Side, proto int) { wait(s, s.Speaking("a", proto)) })
	t.Run("by a user who may not PING", func(t *testing.T) {
		b.Redis.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-ping")
		b.Compare(t, func(s *proxytest.Side) {
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

// A stream read that waits holds up nobody, whatever its group, consumer and streams are called.
func TestAStreamReadThatWaitsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	other := srv.Dial(t)
	for i, cmd := range []string{
		"XREADGROUP GROUP streams c BLOCK 0 STREAMS s >",
		"XREADGROUP GROUP g streams BLOCK 0 STREAMS s >",
		"XREADGROUP COUNT 7 GROUP streams streams NOACK BLOCK 0 STREAMS streams >",
		"XREAD COUNT 3 BLOCK 0 STREAMS count block $ $",
	} {
		for _, key := range []string{"s", "streams"} {
			for _, group := range []string{"g", "streams"} {
				srv.Redis.Do(t, "XGROUP", "CREATE", key, group, "$", "MKSTREAM")
			}
		}
		waiter := srv.Dial(t)
		waiter.Raw(proxytest.Inline(cmd))
		proxytest.AwaitBlocked(t, 1, srv.Redis)
		other.Script("SET k "+strconv.Itoa(i), "+OK")
		for _, key := range []string{"s", "streams", "block"} {
			srv.Redis.Do(t, "XADD", key, "*", "f", "v")
		}
		waiter.Gets("*1")
		srv.Redis.Do(t, "FLUSHALL")
	}
}

// There may be many commands behind one that waits. They are taken in parts, and all are answered.
func TestManyCommandsBehindOneThatWaits(t *testing.T) {
	t.Parallel()
	const n = 50_000
	srv := proxytest.Start(t, redistest.Start(t))
	srv.Dial(t).Do("LOCK", "held")
	for _, first := range []string{"LOCK held WAIT 50", "BLPOP nothing 0.05", "MULTI", "CLIENT REPLY OFF"} {
		c := srv.Dial(t)
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
}
