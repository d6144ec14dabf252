package transparency

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestPubSubIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]func(s *proxytest.Side, proto int){
		"messages": func(s *proxytest.Side, proto int) {
			sub, pub := s.Speaking("sub", proto), s.Speaking("pub", proto)
			sub.Send("SUBSCRIBE", "a", "b", "a")
			sub.Expect(3)
			sub.Send("PSUBSCRIBE", "a*", "*")
			sub.Expect(2)
			pub.Do("PUBLISH", "a", "hello")
			sub.Expect(3)
			pub.Do("PUBLISH", "b", "\r\n\x00binary")
			sub.Expect(2)
			sub.Send("UNSUBSCRIBE", "a", "nosuch")
			sub.Expect(2)
			sub.Send("PUNSUBSCRIBE")
			sub.Expect(2)
			pub.Do("PUBLISH", "b", "again")
			sub.Expect(1)
			pub.Each("PUBSUB CHANNELS", "PUBSUB NUMSUB a b")
			sub.Send("UNSUBSCRIBE")
			sub.Expect(1)
			sub.Each("SET k v", "GET k")
		},
		"commands while subscribed": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			login := "AUTH x"
			if !proxytest.AnswersRefusals(s.T, s.Redis) {
				login = "ECHO x"
			}
			c.Together("SUBSCRIBE a", "PING", "PING word", "GET k", "SET k v", "NOSUCH", "MULTI", "CLIENT ID x",
				"SELECT x", login, "WATCH", "BLPOP l 0.01", "MONITOR x", "EXEC", "CLIENT REPLY foo", "WAIT x 0", "RESET x", "UNSUBSCRIBE", "PING", "GET k")
		},
		"transaction while subscribed": func(s *proxytest.Side, proto int) {
			if proto == 2 {
				return
			}
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Together("SUBSCRIBE a", "MULTI", "SET k 1", "GET k", "PUBLISH other x", "EXEC", "GET k", "WATCH k", "GET k")
			b.Each("SET k 2", "PUBLISH a m")
			a.Raw(proxytest.Inline("MULTI", "GET k", "EXEC", "MULTI", "BAD", "EXEC", "MULTI", "DISCARD", "UNSUBSCRIBE", "PING"))
			a.Expect(11)
		},
		"publish to oneself": func(s *proxytest.Side, proto int) {
			if proto == 2 {
				return
			}
			c := s.Speaking("a", proto)
			c.Raw(proxytest.Inline("SUBSCRIBE a", "PUBLISH a 1", "PING", "MULTI", "PUBLISH a 2", "GET k", "EXEC", "PING end"))
			c.Until("end")
		},
		"none at all": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Raw(proxytest.Inline("UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "UNSUBSCRIBE a b", "PUNSUBSCRIBE c", "SET k v", "GET k", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "GET k", "PING"))
			c.Expect(13)
		},
		"pipelined around": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			for range 20 {
				c.Together("SET k v", "SUBSCRIBE a", "UNSUBSCRIBE a", "GET k", "PSUBSCRIBE b", "PUNSUBSCRIBE", "MULTI", "GET k", "EXEC", "SUBSCRIBE c", "UNSUBSCRIBE", "INCR n")
			}
		},
		"lists that look like messages": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("RPUSH l message a b", "RPUSH m subscribe a 7", "RPUSH n pong lockproxy:", "SUBSCRIBE a", "UNSUBSCRIBE", "LRANGE l 0 -1", "LRANGE m 0 -1", "LRANGE n 0 -1",
				`EVAL "return {'unsubscribe','x',4}" 0`, `EVAL "return {'subscribe','x',4}" 0`, "PING", "SET k v", "GET k")
			c.Together("SUBSCRIBE b", "PUNSUBSCRIBE", "UNSUBSCRIBE", `EVAL "return {'subscribe','x',4}" 0`, "GET k", "BLPOP m 1", "GET k")
		},
		"sharded": func(s *proxytest.Side, proto int) {
			sub, pub := s.Speaking("sub", proto), s.Speaking("pub", proto)
			sub.Send("SSUBSCRIBE", "a", "b")
			sub.Expect(2)
			pub.Do("SPUBLISH", "a", "hello")
			sub.Expect(1)
			pub.Do("PUBLISH", "a", "hello")
			sub.Raw(proxytest.Inline("PING x", "SUBSCRIBE a", "SUNSUBSCRIBE", "UNSUBSCRIBE", "PING x", "GET k"))
			sub.Expect(7)
			pub.Do("PUBSUB", "SHARDCHANNELS")
		},
		"reset": func(s *proxytest.Side, proto int) {
			sub, pub := s.Speaking("sub", proto), s.Speaking("pub", proto)
			sub.Raw(proxytest.Inline("SUBSCRIBE a b", "PSUBSCRIBE c", "SSUBSCRIBE d", "RESET", "GET k", "PING"))
			sub.Expect(7)
			pub.Do("PUBLISH", "a", "x")
			sub.Together("SUBSCRIBE a", "UNSUBSCRIBE", "PING")
		},
		"quit": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Raw(proxytest.Inline("SUBSCRIBE a", "QUIT", "PING"))
			c.End()
		},
		"client hangs up": func(s *proxytest.Side, proto int) {
			sub, pub := s.Speaking("sub", proto), s.Speaking("pub", proto)
			sub.Send("SUBSCRIBE", "a")
			sub.Expect(1)
			_ = sub.Conn.Close()
			proxytest.WaitFor(s.T, "the subscription to be gone", func() bool {
				return pub.Quiet("PUBSUB", "NUMSUB", "a") == "*2\r\n$1\r\na\r\n:0\r\n"
			})
		},
		"hello while subscribed": func(s *proxytest.Side, proto int) {
			s.HideHelloID()
			sub, pub := s.Speaking("sub", proto), s.Speaking("pub", proto)
			sub.Together("SUBSCRIBE a", "PSUBSCRIBE p", "HELLO 3", "GET k", "HELLO 2", "GET k", "PING")
			pub.Do("PUBLISH", "a", "x")
			sub.Expect(1)
			sub.Together("UNSUBSCRIBE", "GET k", "PUNSUBSCRIBE", "GET k")
			sub.Together("HELLO 3", "SUBSCRIBE a", "GET k", "UNSUBSCRIBE", "PING", "HELLO 2", "GET k")
		},
		"state behind an unsubscription": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Raw(proxytest.Inline("SUBSCRIBE a b c", "PSUBSCRIBE d e", "UNSUBSCRIBE a b c", "PUNSUBSCRIBE e d", "MULTI", "SELECT 1", "SET k one", "EXEC", "GET k", "SELECT 0", "GET k"))
			c.Expect(17)
			s.Hide(`\$1\r\n[abc]\r\n`, "CH") // Redis goes through a table
			c.Raw(proxytest.Inline("SUBSCRIBE a b c", "UNSUBSCRIBE", "MULTI", "SELECT 1", "SET k uno", "EXEC", "GET k", "SELECT 0", "GET k"))
			c.Expect(13)
			c.Raw(proxytest.Inline("SET k zero", "SUBSCRIBE a b c", "UNSUBSCRIBE", "MULTI", "SELECT 1", "DISCARD", "GET k"))
			c.Expect(11)
			c.Do("GET", "k")
			c.Do("GET", "k") // on its lane again
		},
		"many channels": func(s *proxytest.Side, proto int) {
			s.Hide(`\$\d+\r\nchx*`, "CH") // the order depends on how far Redis has got in growing a table
			c := s.Speaking("a", proto)
			names := strings.Fields(strings.Repeat("ch ", 300))
			for i := range names {
				names[i] += strings.Repeat("x", i)
			}
			c.Send(append([]string{"SUBSCRIBE"}, names...)...)
			c.Send("PING", "x")
			c.Until("x\r\n")
			c.Raw(proxytest.Inline("UNSUBSCRIBE", "GET k", "SUBSCRIBE a", "UNSUBSCRIBE", "GET k"))
			c.Expect(304)
		},
		"reply off": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Raw(proxytest.Inline("CLIENT REPLY OFF", "SUBSCRIBE a", "PING x", "SET k v"))
			proxytest.WaitFor(s.T, "the subscription", func() bool {
				return b.Quiet("PUBSUB", "NUMSUB", "a") == "*2\r\n$1\r\na\r\n:1\r\n"
			})
			b.Do("PUBLISH", "a", "m")
			if proto == 3 {
				a.Raw(proxytest.Inline("CLIENT REPLY ON", "PING x"))
				a.Until("$1\r\nx")
			} else {
				a.Raw(proxytest.Inline("UNSUBSCRIBE", "CLIENT REPLY ON", "PING x"))
				a.Until("$1\r\nx")
			}
			a.Raw(proxytest.Inline("CLIENT REPLY SKIP", "SUBSCRIBE a", "SUBSCRIBE b", "UNSUBSCRIBE", "PING end"))
			a.Until("end")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Both(t, script) })
	}
}

// A client that may not subscribe, or may not PING, gets Redis's refusals and nothing else.
func TestPubSubWithLimitedRights(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t, "--requirepass", "secret")
	b.Redis.Do(t, "ACL", "SETUSER", "bob", "on", ">pw", "~*", "&open*", "+@all", "-ping", "-psubscribe")
	b.Both(t, func(s *proxytest.Side, proto int) {
		s.HideHelloID()
		c := s.Client("a")
		c.Together("SUBSCRIBE a", "UNSUBSCRIBE", "PING", "GET k", "RESET", "HELLO "+strconv.Itoa(proto)+" AUTH bob pw",
			"SUBSCRIBE closed", "SUBSCRIBE open closed", "PSUBSCRIBE x", "UNSUBSCRIBE", "PING", "SET k v",
			"SUBSCRIBE open", "PING", "PSUBSCRIBE x", "SUBSCRIBE closed", "UNSUBSCRIBE", "GET k", "PING", "SUBSCRIBE open", "UNSUBSCRIBE open", "GET k")
	})
}

// Once a client has the answer to QUIT, nothing of it is left at Redis.
func TestQuitEndsSubscriptionsBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	direct := proxytest.Dial(t, "unix:"+srv.Redis.Socket())
	for range 100 {
		c := srv.Dial(t)
		c.Quiet("SUBSCRIBE", "news")
		c.Script("QUIT", "+OK")
		direct.Script("PUBLISH news x", ":0")
		c.Ends()
	}
}
