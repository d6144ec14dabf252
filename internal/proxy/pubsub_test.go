package proxy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestPubSubIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *side, proto int){
		"messages": func(s *side, proto int) {
			sub, pub := s.speaking("sub", proto), s.speaking("pub", proto)
			sub.send("SUBSCRIBE", "a", "b", "a")
			sub.expect(3)
			sub.send("PSUBSCRIBE", "a*", "*")
			sub.expect(2)
			pub.do("PUBLISH", "a", "hello")
			sub.expect(3)
			pub.do("PUBLISH", "b", "\r\n\x00binary")
			sub.expect(2)
			sub.send("UNSUBSCRIBE", "a", "nosuch")
			sub.expect(2)
			sub.send("PUNSUBSCRIBE")
			sub.expect(2)
			pub.do("PUBLISH", "b", "again")
			sub.expect(1)
			pub.do("PUBSUB", "CHANNELS")
			pub.do("PUBSUB", "NUMSUB", "a", "b")
			sub.send("UNSUBSCRIBE")
			sub.expect(1)
			sub.do("SET", "k", "v")
			sub.do("GET", "k")
		},
		"commands while subscribed": func(s *side, proto int) {
			c := s.speaking("a", proto)
			login := "AUTH x"
			if !answersRefusals(s.t, s.redis) {
				login = "ECHO x"
			}
			c.raw(inline("SUBSCRIBE a", "PING", "PING word", "GET k", "SET k v", "NOSUCH", "MULTI", "CLIENT SETNAME x", "CLIENT ID x",
				"HELLO 9", "SELECT x", login, "WATCH", "BLPOP l 0.01", "MONITOR x", "EXEC", "CLIENT REPLY foo", "WAIT x 0", "RESET x", "UNSUBSCRIBE", "PING", "GET k"))
			c.expect(22)
		},
		"transaction while subscribed": func(s *side, proto int) {
			if proto == 2 {
				return
			}
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("SUBSCRIBE a", "MULTI", "SET k 1", "GET k", "PUBLISH other x", "EXEC", "GET k", "WATCH k", "GET k"))
			a.expect(9)
			b.do("SET", "k", "2")
			b.do("PUBLISH", "a", "m")
			a.raw(inline("MULTI", "GET k", "EXEC", "MULTI", "BAD", "EXEC", "MULTI", "DISCARD", "UNSUBSCRIBE", "PING"))
			a.expect(11)
		},
		"subscribe inside a transaction": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("MULTI", "SUBSCRIBE a", "SET k v", "UNSUBSCRIBE nosuch", "PSUBSCRIBE p*", "EXEC"))
			a.expect(6)
			b.do("PUBLISH", "a", "m")
			a.expect(1)
			b.do("PUBLISH", "pp", "m")
			a.expect(1)
			a.raw(inline("UNSUBSCRIBE", "PUNSUBSCRIBE", "GET k"))
			a.expect(3)
		},
		"several channels inside a transaction": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("MULTI", "PING", "SUBSCRIBE a b c", "GET k", "EXEC"))
			a.expect(4)
			a.until("subscribe\r\n$1\r\nc")
			a.expect(1)
			b.do("PUBLISH", "b", "m")
			a.expect(1)
			a.raw(inline("UNSUBSCRIBE", "GET k", "MULTI", "SUBSCRIBE a", "UNSUBSCRIBE", "GET k", "EXEC", "PING", "SET k v", "GET k"))
			a.until("$1\r\nv")
		},
		"discarded inside a transaction": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("MULTI", "SUBSCRIBE a", "DISCARD", "MULTI", "SUBSCRIBE a", "BAD", "EXEC", "WATCH k"))
			a.expect(8)
			b.do("SET", "k", "v")
			a.raw(inline("MULTI", "SUBSCRIBE a", "EXEC", "GET k", "SELECT 1", "GET k")) // WATCH has seen the change
			a.expect(6)
			b.do("PUBLISH", "a", "m")
		},
		"publish to oneself": func(s *side, proto int) {
			if proto == 2 {
				return
			}
			c := s.speaking("a", proto)
			c.raw(inline("SUBSCRIBE a", "PUBLISH a 1", "PING", "MULTI", "PUBLISH a 2", "GET k", "EXEC", "PING end"))
			c.until("end")
		},
		"none at all": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a b", "PUNSUBSCRIBE c", "SET k v", "GET k", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "GET k", "PING"))
			c.expect(13)
		},
		"pipelined around": func(s *side, proto int) {
			c := s.speaking("a", proto)
			for range 20 {
				c.raw(inline("SET k v", "SUBSCRIBE a", "UNSUBSCRIBE a", "GET k", "PSUBSCRIBE b", "PUNSUBSCRIBE", "MULTI", "GET k", "EXEC", "SUBSCRIBE c", "UNSUBSCRIBE", "INCR n"))
				c.expect(12)
			}
		},
		"lists that look like messages": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("RPUSH l message a b", "RPUSH m subscribe a 7", "RPUSH n pong lockproxy:", "SUBSCRIBE a", "UNSUBSCRIBE", "LRANGE l 0 -1", "LRANGE m 0 -1", "LRANGE n 0 -1",
				`EVAL "return {'unsubscribe','x',4}" 0`, `EVAL "return {'subscribe','x',4}" 0`, "PING", "SET k v", "GET k"))
			c.expect(13)
			c.raw(inline("SUBSCRIBE b", "PUNSUBSCRIBE", "UNSUBSCRIBE", `EVAL "return {'subscribe','x',4}" 0`, "GET k", "BLPOP m 1", "GET k"))
			c.expect(7)
		},
		"sharded": func(s *side, proto int) {
			sub, pub := s.speaking("sub", proto), s.speaking("pub", proto)
			sub.send("SSUBSCRIBE", "a", "b")
			sub.expect(2)
			pub.do("SPUBLISH", "a", "hello")
			sub.expect(1)
			pub.do("PUBLISH", "a", "hello")
			sub.raw(inline("PING x", "SUBSCRIBE a", "SUNSUBSCRIBE", "UNSUBSCRIBE", "PING x", "GET k"))
			sub.expect(7)
			pub.do("PUBSUB", "SHARDCHANNELS")
		},
		"reset": func(s *side, proto int) {
			sub, pub := s.speaking("sub", proto), s.speaking("pub", proto)
			sub.raw(inline("SUBSCRIBE a b", "PSUBSCRIBE c", "SSUBSCRIBE d", "RESET", "GET k", "PING"))
			sub.expect(7)
			pub.do("PUBLISH", "a", "x")
			sub.raw(inline("SUBSCRIBE a", "UNSUBSCRIBE", "PING"))
			sub.expect(3)
		},
		"quit": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("SUBSCRIBE a", "QUIT", "PING"))
			c.end()
		},
		"client hangs up": func(s *side, proto int) {
			sub, pub := s.speaking("sub", proto), s.speaking("pub", proto)
			sub.send("SUBSCRIBE", "a")
			sub.expect(1)
			_ = sub.nc.Close()
			redistest.Eventually(s.t, patience, "the subscription to be gone", func() bool {
				return pub.quiet("PUBSUB", "NUMSUB", "a") == "*2\r\n$1\r\na\r\n:0\r\n"
			})
		},
		"hello while subscribed": func(s *side, proto int) {
			s.hideHelloID()
			sub, pub := s.speaking("sub", proto), s.speaking("pub", proto)
			sub.raw(inline("SUBSCRIBE a", "PSUBSCRIBE p", "HELLO 3", "GET k", "HELLO 2", "GET k", "PING"))
			sub.expect(7)
			pub.do("PUBLISH", "a", "x")
			sub.expect(1)
			sub.raw(inline("UNSUBSCRIBE", "GET k", "PUNSUBSCRIBE", "GET k"))
			sub.expect(4)
			sub.raw(inline("HELLO 3", "SUBSCRIBE a", "GET k", "UNSUBSCRIBE", "PING", "HELLO 2", "GET k"))
			sub.expect(7)
		},
		"state behind an unsubscription": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("SUBSCRIBE a b c", "PSUBSCRIBE d e", "UNSUBSCRIBE a b c", "PUNSUBSCRIBE e d", "MULTI", "SELECT 1", "SET k one", "EXEC", "GET k", "SELECT 0", "GET k"))
			c.expect(17)
			s.hide(`\$1\r\n[abc]\r\n`, "CH") // Redis goes through a table
			c.raw(inline("SUBSCRIBE a b c", "UNSUBSCRIBE", "MULTI", "SELECT 1", "SET k uno", "EXEC", "GET k", "SELECT 0", "GET k"))
			c.expect(13)
			c.raw(inline("SET k zero", "SUBSCRIBE a b c", "UNSUBSCRIBE", "MULTI", "SELECT 1", "DISCARD", "GET k"))
			c.expect(11)
			c.do("GET", "k")
			c.do("GET", "k") // on its lane again
		},
		"many channels": func(s *side, proto int) {
			s.hide(`\$\d+\r\nchx*`, "CH") // the order depends on how far Redis has got in growing a table
			c := s.speaking("a", proto)
			names := strings.Fields(strings.Repeat("ch ", 300))
			for i := range names {
				names[i] += strings.Repeat("x", i)
			}
			c.send(append([]string{"SUBSCRIBE"}, names...)...)
			c.send("PING", "x")
			c.until("x\r\n")
			c.raw(inline("UNSUBSCRIBE", "GET k", "SUBSCRIBE a", "UNSUBSCRIBE", "GET k"))
			c.expect(304)
		},
		"reply off": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.raw(inline("CLIENT REPLY OFF", "SUBSCRIBE a", "PING x", "SET k v"))
			redistest.Eventually(s.t, patience, "the subscription", func() bool {
				return b.quiet("PUBSUB", "NUMSUB", "a") == "*2\r\n$1\r\na\r\n:1\r\n"
			})
			b.do("PUBLISH", "a", "m")
			if proto == 3 {
				a.raw(inline("CLIENT REPLY ON", "PING x"))
				a.until("$1\r\nx")
			} else {
				a.raw(inline("UNSUBSCRIBE", "CLIENT REPLY ON", "PING x"))
				a.until("$1\r\nx")
			}
			a.raw(inline("CLIENT REPLY SKIP", "SUBSCRIBE a", "SUBSCRIBE b", "UNSUBSCRIBE", "PING end"))
			a.until("end")
		},
		"transaction while reply off": func(s *side, proto int) {
			a := s.speaking("a", proto)
			a.raw(inline("CLIENT REPLY OFF", "MULTI", "SUBSCRIBE a", "GET k", "PUBLISH a m", "UNSUBSCRIBE a", "EXEC", "CLIENT REPLY ON", "PING end"))
			a.until("end")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.both(t, script) })
	}
}

// A client that may not subscribe, or may not PING, gets Redis's refusals and nothing else.
func TestPubSubWithLimitedRights(t *testing.T) {
	t.Parallel()
	b := newBench(t, "--requirepass", "secret")
	b.redis.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "&open*", "+@all", "-ping", "-psubscribe")
	b.both(t, func(s *side, proto int) {
		s.hideHelloID()
		c := s.client("a")
		c.raw(inline("SUBSCRIBE a", "UNSUBSCRIBE", "PING", "GET k", "RESET", "HELLO "+strconv.Itoa(proto)+" AUTH bob pw",
			"SUBSCRIBE closed", "SUBSCRIBE open closed", "PSUBSCRIBE x", "UNSUBSCRIBE", "PING", "SET k v",
			"SUBSCRIBE open", "PING", "PSUBSCRIBE x", "SUBSCRIBE closed", "UNSUBSCRIBE", "GET k", "PING", "SUBSCRIBE open", "UNSUBSCRIBE open", "GET k"))
		c.expect(22)
	})
}

// Once a client has the answer to QUIT, nothing of it is left at Redis.
func TestQuitEndsSubscriptionsBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		direct := dialClient(t, "unix:"+redis.Socket())
		for i := range 100 {
			c := dialClient(t, address(srv))
			c.quiet("SUBSCRIBE", "news")
			if b := c.quiet("QUIT"); b != "+OK\r\n" {
				t.Fatalf("QUIT: %q", b)
			}
			if b := direct.quiet("PUBLISH", "news", "x"); b != ":0\r\n" {
				t.Fatalf("after %d clients: %q", i+1, b)
			}
			c.gone()
		}
	})
}
