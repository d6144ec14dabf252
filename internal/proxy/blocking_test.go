package proxy

import (
	"io"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestBlockingCommandsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *side, proto int){
		"served at once": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("RPUSH l 1 2 3 4 5", "BLPOP l 0", "BRPOP l 0", "BLMOVE l m LEFT RIGHT 0", "BRPOPLPUSH l m 0", "BLMPOP 0 2 x l LEFT COUNT 9",
				"ZADD z 1 a 2 b 3 c", "BZPOPMIN z 0", "BZPOPMAX z 0", "BZMPOP 0 1 z MIN", "XADD s 1-1 f v", "XREAD STREAMS s 0", "XREAD BLOCK 0 STREAMS s 0", "PING"))
			c.expect(14)
		},
		"timeout": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("BLPOP l 0.02", "BLMOVE l m LEFT RIGHT 0.02", "BLMPOP 0.02 1 l LEFT", "BZPOPMIN z 0.02", "BZMPOP 0.02 1 z MIN", "XREAD BLOCK 20 STREAMS s $",
				"XGROUP CREATE s g $ MKSTREAM", "XREADGROUP GROUP g me BLOCK 20 STREAMS s >", "WAIT 1 20", "PING"))
			c.expect(10)
		},
		"refused": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("SET k v", "BLPOP k 0", "BLPOP l -1", "BLPOP l x", "BLPOP l", "BLMOVE k l LEFT RIGHT 0", "XREAD BLOCK x STREAMS s $", "XREAD BLOCK 0 STREAMS k $", "XREAD BLOCK 0", "WAIT x 0", "WAIT 0", "WAITAOF 0 0 0", "PING"))
			c.expect(13)
		},
		"woken, and others go on meanwhile": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("SET k before", "BLPOP l 0", "GET k"))
			s.awaitBlocked(1)
			b.do("SET", "k", "after")
			b.do("RPUSH", "l", "x")
			a.expect(3)
		},
		"in order of asking": func(s *side, proto int) {
			var waiters []*peer
			for i := range 5 {
				w := s.speaking("w"+strconv.Itoa(i), proto)
				w.send("BLPOP", "l", "0")
				s.awaitBlocked(i + 1)
				waiters = append(waiters, w)
			}
			b := s.speaking("b", proto)
			b.do("RPUSH", "l", "0", "1", "2", "3", "4")
			for _, w := range waiters {
				w.expect(1)
			}
		},
		"a client that hangs up is served nothing": func(s *side, proto int) {
			for _, end := range []func(*peer){func(c *peer) { _ = c.nc.Close() }, (*peer).halfClose} {
				a, b := s.speaking("a", proto), s.speaking("b", proto)
				a.send("BLPOP", "l", "0")
				s.awaitBlocked(1)
				end(a)
				s.awaitBlocked(0)
				b.do("RPUSH", "l", "x")
				b.do("LPOP", "l")
			}
		},
		"what comes before the end of a client is executed": func(s *side, proto int) {
			b := s.speaking("b", proto)
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
				{"MULTI", "BLPOP nosuch 0", "CLIENT SETNAME x", "SET k 9", "EXEC", "GET k"},
				{"MULTI", "SET k 10", "EXEC", "RPUSH l a", "BLPOP l 0", "RESET", "GET k"},
				{"WAIT 0 0", "SELECT 0", "GET k"},
				{"NOSUCH", "SELECT 0", "GET k"},
			} {
				a := s.speaking("a", proto)
				a.raw(inline(lines...) + "*2\r\n$3\r\nGET\r\n") // and the start of another
				a.halfClose()
				a.end()
				b.do("GET", "k")
			}
		},
		"unblocked by another client": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			for _, how := range []string{"TIMEOUT", "ERROR"} {
				id := integer(s.t, a.quiet("CLIENT", "ID"))
				a.send("BLPOP", "l", "0")
				s.awaitBlocked(1)
				b.do("CLIENT", "UNBLOCK", strconv.Itoa(id), how)
				a.expect(1)
				b.do("CLIENT", "UNBLOCK", strconv.Itoa(id))
			}
			a.do("PING")
		},
		"killed by another client": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			id := integer(s.t, a.quiet("CLIENT", "ID"))
			a.send("BLPOP", "l", "0")
			s.awaitBlocked(1)
			b.do("CLIENT", "KILL", "ID", strconv.Itoa(id))
			a.end()
			b.do("RPUSH", "l", "x")
			b.do("LPOP", "l")
		},
		"key of the wrong type appears": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.send("BLPOP", "l", "0")
			s.awaitBlocked(1)
			b.do("SET", "l", "string")
			b.do("DEL", "l")
			b.do("RPUSH", "l", "x")
			a.expect(1)
		},
		"streams": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.send("XREAD", "COUNT", "2", "BLOCK", "0", "STREAMS", "s", "t", "$", "$")
			s.awaitBlocked(1)
			b.do("XADD", "t", "5-5", "f", "v")
			a.expect(1)
			b.do("XGROUP", "CREATE", "s", "g", "$", "MKSTREAM")
			a.send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">")
			s.awaitBlocked(1)
			b.do("XADD", "s", "6-6", "f", "v")
			a.expect(1)
			a.send("XREADGROUP", "GROUP", "g", "me", "BLOCK", "0", "STREAMS", "s", ">")
			s.awaitBlocked(1)
			b.do("XGROUP", "DESTROY", "s", "g")
			a.expect(1)
		},
		"moved between databases": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.do("SELECT", "2")
			a.send("BLPOP", "l", "0")
			s.awaitBlocked(1)
			b.do("RPUSH", "l", "x")
			b.do("MOVE", "l", "2")
			a.expect(1)
			b.do("RPUSH", "l", "y")
			b.do("SWAPDB", "0", "2")
			a.do("LRANGE", "l", "0", "-1")
			b.do("LRANGE", "l", "0", "-1")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.both(t, script) })
	}
}

// CLIENT UNPAUSE gets through although the pause holds up what others have sent.
func TestUnpauseOvertakesAPausedWrite(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.both(t, func(s *side, proto int) {
		a, c := s.speaking("a", proto), s.speaking("c", proto)
		c.do("CLIENT", "PAUSE", "60000", "WRITE")
		a.send("SET", "k", "v")
		s.awaitBlocked(1)
		c.do("CLIENT", "UNPAUSE")
		a.expect(1)
	})
}

// SCRIPT KILL and FUNCTION KILL get through although others wait for what they end.
func TestKillOvertakesABusyScript(t *testing.T) {
	t.Parallel()
	b := newBench(t, "--busy-reply-threshold", "50")
	b.both(t, func(s *side, proto int) {
		a, c := s.speaking("a", proto), s.speaking("c", proto)
		c.do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function() while true do end end)")
		for _, run := range [][2]string{{`EVAL "while true do end" 0`, "SCRIPT KILL"}, {"FCALL f 0", "FUNCTION KILL"}} {
			a.raw(inline(run[0]))
			redistest.Eventually(t, patience, "the script to be killed", func() bool { return c.quiet(strings.Fields(run[1])...) == "+OK\r\n" })
			a.expect(1)
			c.do("GET", "k")
		}
	})
}

// WAIT counts the replicas that have the client's own writes, whichever connection they went over.
func TestWaitMeasuresTheSessionsOwnWrites(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	replica := redistest.StartReplica(t, b.redis)
	wait := func(s *side, c *peer) {
		replica.Continue()
		c.do("SET", "k", "v")
		c.do("WAIT", "1", "10000")
		replica.Pause()
		c.do("SET", "k", "w")
		c.do("WAIT", "1", "50")
		c.do("WAIT", "0", "50")
		c.raw(inline("SET k x", "WAIT 1 50", "MULTI", "SET k y", "WAIT 1 50", "EXEC", "WAIT 1 50"))
		c.expect(7)
		replica.Continue()
		c.do("SET", "k", "z")
		c.do("WAIT", "1", "10000")
	}
	b.both(t, func(s *side, proto int) { wait(s, s.speaking("a", proto)) })
	t.Run("by a user who may not PING", func(t *testing.T) {
		b.redis.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "+@all", "-ping")
		b.compare(t, func(s *side) {
			c := s.client("bob")
			c.do("AUTH", "bob", "pw")
			wait(s, c)
		})
	})
}

// A redis-server takes the proxy for its master: the replication stream passes as it is, in both directions.
func TestReplicaOfTheProxy(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			master := redistest.Start(t)
			srv := startProxy(t, master, func(o *Options) { o.Engine = engine })
			master.Do(t, "SET", "before", "\r\n$-1\r\n")
			_, port, _ := strings.Cut(address(srv), ":")
			replica := redistest.Start(t, "--replicaof", "127.0.0.1 "+port)
			redistest.Eventually(t, patience, "the replica's copy", func() bool { return replica.Do(t, "GET", "before") == "\r\n$-1\r\n" })
			for i := range 1000 {
				master.Do(t, "SET", "k"+strconv.Itoa(i), strings.Repeat("x", i))
			}
			redistest.Eventually(t, patience, "the last write at the replica", func() bool {
				return replica.Do(t, "GET", "k999") == strings.Repeat("x", 999)
			})
			master.AwaitReplicas(t, 1) // it acknowledges through the proxy
		})
	}
}

// A stream read that waits holds up nobody, whatever its group, consumer and streams are called.
func TestAStreamReadThatWaitsHoldsUpNobody(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		other := dialClient(t, address(srv))
		for i, cmd := range []string{
			"XREADGROUP GROUP streams c BLOCK 0 STREAMS s >",
			"XREADGROUP GROUP g streams BLOCK 0 STREAMS s >",
			"XREADGROUP COUNT 7 GROUP streams streams NOACK BLOCK 0 STREAMS streams >",
			"XREAD COUNT 3 BLOCK 0 STREAMS count block $ $",
		} {
			for _, key := range []string{"s", "streams"} {
				for _, group := range []string{"g", "streams"} {
					redis.Do(t, "XGROUP", "CREATE", key, group, "$", "MKSTREAM")
				}
			}
			waiter := dialClient(t, address(srv))
			waiter.raw(inline(cmd))
			redistest.Eventually(t, patience, "the blocked client", func() bool {
				info, _ := redis.Do(t, "INFO", "clients").(string)
				return strings.Contains(info, "\nblocked_clients:1\r")
			})
			if got := other.quiet("SET", "k", strconv.Itoa(i)); got != "+OK\r\n" {
				t.Errorf("%s: another client got %q", cmd, got)
			}
			for _, key := range []string{"s", "streams", "block"} {
				redis.Do(t, "XADD", key, "*", "f", "v")
			}
			if b, err := waiter.frame(); err != nil || !strings.HasPrefix(b, "*1") {
				t.Errorf("%s: %q, %v", cmd, b, err)
			}
			redis.Do(t, "FLUSHALL")
		}
	})
}

// There may be many commands behind one that waits. They are taken in parts, and all are answered.
func TestManyCommandsBehindOneThatWaits(t *testing.T) {
	t.Parallel()
	const n = 50_000
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		dialClient(t, address(srv)).do("LOCK", "held")
		for _, first := range []string{"LOCK held WAIT 50", "BLPOP nothing 0.05", "MULTI", "CLIENT REPLY OFF"} {
			c := dialClient(t, address(srv))
			go func() { // Redis answers while the client writes
				_, _ = io.WriteString(c.nc, inline(first)+strings.Repeat(inline("PING", ""), n)+inline("CLIENT REPLY ON", "EXEC"))
			}()
			want, got := n+3, 0
			if first == "CLIENT REPLY OFF" {
				want = 2
			}
			for ; got < want; got++ {
				if b, err := c.lateFrame(); err != nil { // with CLIENT REPLY OFF nothing comes before all are read
					t.Fatalf("%s: after %d replies: %q, %v", first, got, b, err)
				}
			}
			c.halfClose()
			if b, err := c.frame(); err == nil {
				t.Errorf("%s: one more reply: %q", first, b)
			}
		}
	})
}
