package transparency

import (
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestTransactionsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]func(s *proxytest.Side, proto int){
		"exec": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Each("SET k 1", "MULTI", "INCR k", "GET k", "HSET h f v", "HGETALL h", "EXEC", "GET k")
		},
		"pipelined between ordinary commands": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("SET k 1", "MULTI", "INCR k", "GET k", "EXEC", "GET k", "MULTI", "DISCARD", "GET k", "MULTI", "EXEC", "PING")
		},
		"error at queue time": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "SET k", "GET k", "NOSUCHCOMMAND", "EXEC", "GET k")
		},
		"error at run time": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "SET k v", "INCR k", "GET k", "EXEC")
		},
		"misplaced": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("EXEC", "DISCARD", "UNWATCH", "MULTI", "MULTI", "WATCH k", "SET k 1", "EXEC", "EXEC", "MULTI foo", "EXEC foo")
		},
		"watch aborts": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Each("WATCH k", "GET k")
			b.Do("SET", "k", "other")
			a.Each("MULTI", "SET k mine", "EXEC", "GET k", "MULTI", "SET k mine", "EXEC")
		},
		"watch holds": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Do("WATCH", "k", "l")
			b.Do("SET", "m", "other")
			a.Together("MULTI", "SET k mine", "EXEC")
			b.Do("GET", "k")
		},
		"unwatch forgets": func(s *proxytest.Side, proto int) {
			a, b := s.Speaking("a", proto), s.Speaking("b", proto)
			a.Each("WATCH k", "UNWATCH")
			b.Do("SET", "k", "other")
			a.Together("MULTI", "SET k mine", "EXEC")
			a.Each("WATCH k", "MULTI", "DISCARD")
			b.Do("SET", "k", "other")
			a.Together("MULTI", "GET k", "EXEC")
		},
		"reset leaves": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "SET k v", "RESET", "GET k", "EXEC", "WATCH k", "RESET", "PING")
		},
		"select inside": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Do("SET", "k", "in 0")
			c.Together("MULTI", "UNWATCH", "SELECT 3", "SET k three", "SELECT 99", "SELECT x", "EXEC", "GET k")
			c.Together("MULTI", "PING", "MULTI", "SELECT 4", "GET k", "EXEC", "GET k", "WATCH k", "MULTI", "WATCH k", "SELECT 5", "EXEC", "GET k")
			c.Each("SELECT 0", "GET k")
		},
		"select inside, aborted": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("SET k zero", "MULTI", "SELECT 3", "SET k three", "DISCARD", "GET k", "MULTI", "SELECT 3", "BAD", "EXEC", "GET k")
		},
		"hello inside": func(s *proxytest.Side, proto int) {
			s.HideHelloID()
			c := s.Speaking("a", proto)
			c.Together("HSET h f v", "MULTI", "HGETALL h", "HELLO "+map[int]string{2: "3", 3: "2"}[proto], "HGETALL h", "EXEC", "HGETALL h")
		},
		"blocking commands inside do not block": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "BLPOP l 0", "XREAD BLOCK 0 STREAMS s $", "BLMOVE a b LEFT RIGHT 0", "BZPOPMIN z 0", "WAIT 1 0", "RPUSH l x", "BLPOP l 0", "EXEC", "PING")
		},
		"client commands inside": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("CLIENT SETNAME before", "MULTI", "CLIENT GETNAME", "CLIENT SETNAME within", "CLIENT GETNAME", "CLIENT SETNAME", "CLIENT NOSUCH", "EXEC", "CLIENT GETNAME")
			c.Raw(proxytest.Inline("MULTI", "CLIENT SETNAME within", "CLIENT GETNAME", "EXEC", "CLIENT GETNAME", "MULTI", "QUIT"))
			c.Expect(6)
			c.End()
		},
		// The proxy's own questions after a change of identity stay out of the next transaction, even if that one waits.
		"identity inside, and a transaction behind it": func(s *proxytest.Side, proto int) {
			s.HideHelloID()
			s.Redis.Do(s.T, "ACL", "SETUSER", "tx", "on", ">pw1", ">pw2", "~*", "&*", "+@all")
			c := s.Speaking("a", proto)
			c.Together(`HELLO 3 AUTH tx pw1`, "HELLO "+strconv.Itoa(proto))
			for _, change := range []string{`HELLO 3 SETNAME "a b"`, "AUTH tx pw2", "SELECT 1", "CLIENT SETNAME n"} {
				c.Raw(proxytest.Inline("MULTI", change, "PING 0", "EXEC", "MULTI", "PING 1", "CLIENT GETNAME", "PING 2", "CLIENT GETNAME", "EXEC", "ECHO end"))
				c.Until("end")
			}
		},
		"scripts and functions inside": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", `EVAL "return {1,{2,'x'},false,true}" 0`, `EVAL "return redis.call('SET',KEYS[1],ARGV[1])" 1 k v`, "EVALSHA 0000000000000000000000000000000000000000 0", "EXEC")
		},
		"monitor and sync inside": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "MONITOR", "EXEC", "MULTI", "PSYNC ? -1", "EXEC", "PING")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Both(t, script) })
	}
}

// A transaction with a lock command fails as one with a command that Redis refuses to queue.
func TestLockVerbInTransactionAborts(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	c := proxytest.Dial(t, b.Proxy.Addr())
	for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK", "UNLOCK", "LOCKINFO", "FORCEUNLOCK", "lock"} {
		c.Raw(proxytest.Inline("MULTI", "SET k v", verb+" k", "EXEC", "GET k"))
		want := []string{
			"+OK\r\n", "+QUEUED\r\n", "-ERR Command not allowed inside a transaction: send lock commands before MULTI or after EXEC, or on another connection\r\n",
			"-EXECABORT Transaction discarded because of previous errors.\r\n", "$-1\r\n",
		}
		c.Gets(want...)
	}
}

// The proxy edits the replies to CLIENT INFO. Others wait while it edits those of a whole transaction, so their number is limited.
func TestATransactionHasALimitedNumberOfRepliesThatTheProxyEdits(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	queue := func(n int) {
		t.Helper()
		c.Do("MULTI")
		for range n {
			c.Script("CLIENT INFO", "+QUEUED")
		}
	}
	queue(session.MostEdits)
	if got := c.Do("EXEC"); strings.Count(got, " laddr=") != session.MostEdits {
		t.Errorf("EXEC = %.200q", got)
	}
	queue(session.MostEdits)
	c.Script("CLIENT GETNAME", "+QUEUED")
	c.Do("DISCARD")
	for _, command := range [][]string{{"CLIENT", "INFO"}, {"CLIENT", "ID"}, {"HELLO", "3"}} {
		queue(session.MostEdits)
		if got := c.Do(command...); !strings.HasPrefix(got, "-ERR too many") {
			t.Errorf("%q = %q", command, got)
		}
		c.Script("EXEC", "-EXECABORT")
	}
}
