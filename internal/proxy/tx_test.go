package proxy

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestTransactionsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *side, proto int){
		"exec": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.do("SET", "k", "1")
			c.do("MULTI")
			c.do("INCR", "k")
			c.do("GET", "k")
			c.do("HSET", "h", "f", "v")
			c.do("HGETALL", "h")
			c.do("EXEC")
			c.do("GET", "k")
		},
		"pipelined between ordinary commands": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("SET k 1", "MULTI", "INCR k", "GET k", "EXEC", "GET k", "MULTI", "DISCARD", "GET k", "MULTI", "EXEC", "PING"))
			c.expect(12)
		},
		"error at queue time": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", "SET k", "GET k", "NOSUCHCOMMAND", "EXEC", "GET k"))
			c.expect(6)
		},
		"error at run time": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", "SET k v", "INCR k", "GET k", "EXEC"))
			c.expect(5)
		},
		"misplaced": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("EXEC", "DISCARD", "UNWATCH", "MULTI", "MULTI", "WATCH k", "SET k 1", "EXEC", "EXEC", "MULTI foo", "EXEC foo"))
			c.expect(11)
		},
		"watch aborts": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.do("WATCH", "k")
			a.do("GET", "k")
			b.do("SET", "k", "other")
			a.do("MULTI")
			a.do("SET", "k", "mine")
			a.do("EXEC")
			a.do("GET", "k")
			a.do("MULTI")
			a.do("SET", "k", "mine")
			a.do("EXEC")
		},
		"watch holds": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.do("WATCH", "k", "l")
			b.do("SET", "m", "other")
			a.raw(inline("MULTI", "SET k mine", "EXEC"))
			a.expect(3)
			b.do("GET", "k")
		},
		"unwatch forgets": func(s *side, proto int) {
			a, b := s.speaking("a", proto), s.speaking("b", proto)
			a.do("WATCH", "k")
			a.do("UNWATCH")
			b.do("SET", "k", "other")
			a.raw(inline("MULTI", "SET k mine", "EXEC"))
			a.expect(3)
			a.do("WATCH", "k")
			a.do("MULTI")
			a.do("DISCARD")
			b.do("SET", "k", "other")
			a.raw(inline("MULTI", "GET k", "EXEC"))
			a.expect(3)
		},
		"reset leaves": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", "SET k v", "RESET", "GET k", "EXEC", "WATCH k", "RESET", "PING"))
			c.expect(8)
		},
		"select inside": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.do("SET", "k", "in 0")
			c.raw(inline("MULTI", "UNWATCH", "SELECT 3", "SET k three", "SELECT 99", "SELECT x", "EXEC", "GET k"))
			c.expect(8)
			c.raw(inline("MULTI", "PING", "MULTI", "SELECT 4", "GET k", "EXEC", "GET k", "WATCH k", "MULTI", "WATCH k", "SELECT 5", "EXEC", "GET k"))
			c.expect(13)
			c.do("SELECT", "0")
			c.do("GET", "k")
		},
		"select inside, aborted": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("SET k zero", "MULTI", "SELECT 3", "SET k three", "DISCARD", "GET k", "MULTI", "SELECT 3", "BAD", "EXEC", "GET k"))
			c.expect(11)
		},
		"hello inside": func(s *side, proto int) {
			s.hideHelloID()
			c := s.speaking("a", proto)
			c.raw(inline("HSET h f v", "MULTI", "HGETALL h", "HELLO "+map[int]string{2: "3", 3: "2"}[proto], "HGETALL h", "EXEC", "HGETALL h"))
			c.expect(7)
		},
		"blocking commands inside do not block": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", "BLPOP l 0", "XREAD BLOCK 0 STREAMS s $", "BLMOVE a b LEFT RIGHT 0", "BZPOPMIN z 0", "WAIT 1 0", "RPUSH l x", "BLPOP l 0", "EXEC", "PING"))
			c.expect(10)
		},
		"client commands inside": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("CLIENT SETNAME before", "MULTI", "CLIENT GETNAME", "CLIENT SETNAME within", "CLIENT GETNAME", "CLIENT SETNAME", "CLIENT NOSUCH", "EXEC", "CLIENT GETNAME"))
			c.expect(9)
			c.raw(inline("MULTI", "CLIENT SETNAME within", "CLIENT GETNAME", "EXEC", "CLIENT GETNAME", "MULTI", "QUIT"))
			c.expect(6)
			c.end()
		},
		// The proxy's own questions after a change of identity stay out of the next transaction, even if that one waits.
		"identity inside, and a transaction behind it": func(s *side, proto int) {
			s.hideHelloID()
			s.redis.Do(s.t, "ACL", "SETUSER", "tx", "on", ">pw1", ">pw2", "~*", "&*", "+@all")
			c := s.speaking("a", proto)
			c.raw(inline(`HELLO 3 AUTH tx pw1`, "HELLO "+strconv.Itoa(proto)))
			c.expect(2)
			for _, change := range []string{`HELLO 3 SETNAME "a b"`, "HELLO 3 SETNAME n NOSUCHOPTION", "AUTH tx pw2", "SELECT 1", "CLIENT SETNAME n"} {
				for _, more := range []string{"PING 0", "UNSUBSCRIBE a"} {
					c.raw(inline("MULTI", change, more, "EXEC", "MULTI", "PING 1", "CLIENT GETNAME", "PING 2", "CLIENT GETNAME", "EXEC", "ECHO end"))
					c.until("end")
				}
			}
		},
		"scripts and functions inside": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", `EVAL "return {1,{2,'x'},false,true}" 0`, `EVAL "return redis.call('SET',KEYS[1],ARGV[1])" 1 k v`, "EVALSHA 0000000000000000000000000000000000000000 0", "EXEC"))
			c.expect(5)
		},
		"monitor and sync inside": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("MULTI", "MONITOR", "EXEC", "MULTI", "PSYNC ? -1", "EXEC", "PING"))
			c.expect(7)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.both(t, script) })
	}
}

// A transaction with a lock command fails as one with a command that Redis refuses to queue.
func TestLockVerbInTransactionAborts(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	c := dialClient(t, b.proxied())
	for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK", "UNLOCK", "LOCKINFO", "FORCEUNLOCK", "lock"} {
		c.raw(inline("MULTI", "SET k v", verb+" k", "EXEC", "GET k"))
		want := []string{
			"+OK\r\n", "+QUEUED\r\n", "-ERR Command not allowed inside a transaction\r\n",
			"-EXECABORT Transaction discarded because of previous errors.\r\n", "$-1\r\n",
		}
		for i, w := range want {
			if got, err := c.frame(); got != w || err != nil {
				t.Fatalf("%s: reply %d is %q, %v, want %q", verb, i, got, err, w)
			}
		}
	}
}

// The proxy edits the replies to CLIENT INFO. Others wait while it edits those of a whole transaction, so their number is limited.
func TestATransactionHasALimitedNumberOfRepliesThatTheProxyEdits(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		queue := func(n int) {
			t.Helper()
			c.do("MULTI")
			for i := range n {
				if got := c.do("CLIENT", "INFO"); got != "+QUEUED\r\n" {
					t.Fatalf("CLIENT INFO %d = %q", i, got)
				}
			}
		}
		queue(session.MostEdits)
		if got := c.do("EXEC"); strings.Count(got, " laddr=") != session.MostEdits {
			t.Errorf("EXEC = %.200q", got)
		}
		queue(session.MostEdits)
		if got := c.do("CLIENT", "GETNAME"); got != "+QUEUED\r\n" {
			t.Errorf("a command whose reply passes as it is: %q", got)
		}
		c.do("DISCARD")
		for _, command := range [][]string{{"CLIENT", "INFO"}, {"CLIENT", "ID"}, {"HELLO", "3"}} {
			queue(session.MostEdits)
			if got := c.do(command...); !strings.HasPrefix(got, "-ERR too many") {
				t.Errorf("%q = %q", command, got)
			}
			if got := c.do("EXEC"); !strings.HasPrefix(got, "-EXECABORT") {
				t.Errorf("EXEC = %.200q", got)
			}
		}
	})
}
