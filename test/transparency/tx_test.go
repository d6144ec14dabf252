package transparency

import (
	"strings"
	"testing"

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
		"blocking commands inside do not block": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "BLPOP l 0", "XREAD BLOCK 0 STREAMS s $", "BLMOVE a b LEFT RIGHT 0", "BZPOPMIN z 0", "WAIT 1 0", "RPUSH l x", "BLPOP l 0", "EXEC", "PING")
		},
		"client commands inside": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("CLIENT SETNAME before", "MULTI", "CLIENT GETNAME", "CLIENT NO-EVICT on", "CLIENT PAUSE 0", "EXEC", "CLIENT GETNAME")
			c.Together("MULTI", "CLIENT SETNAME", "CLIENT NOSUCH", "EXEC", "MULTI", "CLIENT NO-EVICT on", "DISCARD", "CLIENT GETNAME")
			c.Raw(proxytest.Inline("MULTI", "QUIT"))
			c.Expect(2)
			c.End()
		},
		"select inside, and a transaction behind it": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("MULTI", "SELECT 1", "PING 0", "EXEC", "MULTI", "PING 1", "SET k v", "EXEC", "GET k", "SELECT 0", "GET k")
		},
		"a login inside": func(s *proxytest.Side, proto int) {
			if !proxytest.AnswersRefusals(s.T, s.Redis) {
				return
			}
			s.Redis.Do(s.T, "ACL", "SETUSER", "tx", "on", ">pw", "~*", "&*", "+@all")
			c := s.Speaking("a", proto)
			c.Together("MULTI", "AUTH tx wrong", "SELECT 2", "AUTH", "ACL WHOAMI", "DISCARD", "MULTI", "AUTH tx pw", "DISCARD", "ACL WHOAMI")
			c.Together("MULTI", "AUTH tx wrong", "SELECT 2", "ACL WHOAMI", "EXEC", "ACL WHOAMI", "SET k 2", "MULTI", "BAD", "AUTH tx pw", "EXEC", "ACL WHOAMI")
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

// So does one with a command that the proxy answers, or whose reply it edits.
func TestWhatTheProxyAnswersAbortsATransaction(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	for _, command := range []string{
		"HELLO", "HELLO 3", "CLIENT ID", "CLIENT INFO", "CLIENT LIST", "CLIENT KILL ID 1", "CLIENT UNBLOCK 1", "CLIENT SETNAME n", "CLIENT REPLY ON",
		"CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT TRACKING on REDIRECT 1",
	} {
		c.Script("MULTI", "+OK", "SET k v", "+QUEUED", command, "-ERR Command not allowed inside a transaction\r\n", "EXEC", "-EXECABORT", "GET k", "$-1")
		c.Raw(proxytest.Inline("MULTI", "SET k v", command, "EXEC", "GET k")) // in one go
		c.Gets("+OK", "+QUEUED", "-ERR Command not allowed", "-EXECABORT", "$-1")
	}
	c.Script("CLIENT SETNAME n", "+OK", "CLIENT GETNAME", "$1\r\nn", "HELLO 2", "*14")
}

// A login that Redis accepts in a transaction ends the connection behind the replies: what has been sent behind EXEC
// does not run.
func TestALoginInATransactionEndsTheConnection(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	if !proxytest.AnswersRefusals(t, redis) {
		t.Skip("no login in a transaction")
	}
	redis.Do(t, "ACL", "SETUSER", "tx", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis)
	for _, login := range [][]string{{"AUTH tx pw"}, {"AUTH tx wrong", "AUTH tx pw"}, {"AUTH tx pw", "SELECT 3"}} {
		c := srv.Dial(t)
		c.Raw(proxytest.Inline("MULTI") + proxytest.Inline(login...) + proxytest.Inline("ACL WHOAMI", "EXEC", "SET behind 1"))
		c.Gets("+OK")
		for range len(login) + 1 {
			c.Gets("+QUEUED")
		}
		if got := c.Next(); !strings.HasSuffix(got, "$2\r\ntx\r\n") {
			t.Errorf("%q: EXEC = %q", login, got)
		}
		c.Ends()
	}
	if n := redis.Do(t, "EXISTS", "behind"); n != int64(0) {
		t.Error("a command behind the end has run")
	}
	proxytest.WaitFor(t, "the refused login to be counted", func() bool { return srv.Stats().LoginsFailed == 1 })
}
