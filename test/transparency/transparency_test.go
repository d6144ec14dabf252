package transparency

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestReplyModesAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	// Every sequence of up to three modes with commands of each kind between and behind them.
	modes := []string{"CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY BAD", "client reply skip", "CLIENT REPLY"}
	between := []string{"SET k v", "CLIENT ID x", "WATCH k", "CLIENT SETNAME x", "SELECT 1", "NOSUCH", "RESET", "GET"}
	sequences := func(c *proxytest.Client, proto int) {
		for _, first := range modes {
			for _, second := range modes {
				for i, cmd := range between {
					if cmd == "RESET" && proto == 3 {
						continue
					}
					end := fmt.Sprint("end-", first, second, i)
					c.Raw(proxytest.Inline(first, cmd, second, "GET k", cmd, "DISCARD", "CLIENT REPLY ON", `ECHO "`+end+`"`))
					c.Until(end)
				}
			}
		}
	}
	b.Both(t, func(s *proxytest.Side, proto int) { sequences(s.Speaking("a", proto), proto) })
	scripts := map[string]func(s *proxytest.Side, proto int){
		"skip twice": func(s *proxytest.Side, _ int) {
			s.Client("a").Steps(proxytest.Inline("CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING 1", "PING 2"), 1)
		},
		"skip then off": func(s *proxytest.Side, _ int) {
			s.Client("a").Steps(proxytest.Inline("CLIENT REPLY SKIP", "CLIENT REPLY OFF", "PING 1", "CLIENT REPLY SKIP", "PING 2", "CLIENT REPLY ON", "PING 3"), 2)
		},
		"an empty command is skipped": func(s *proxytest.Side, _ int) {
			c := s.Client("a")
			for _, empty := range []string{"\r\n", "*0\r\n", "*-1\r\n"} {
				c.Steps(proxytest.Inline("CLIENT REPLY SKIP")+empty+proxytest.Inline("PING 1", "PING 2"), 2)
			}
		},
		"reset while off": func(s *proxytest.Side, _ int) {
			s.Client("a").Steps(proxytest.Inline("CLIENT REPLY OFF", "PING 1", "RESET", "PING 2"), 2)
		},
		"reset while skip": func(s *proxytest.Side, _ int) {
			s.Client("a").Steps(proxytest.Inline("CLIENT REPLY SKIP", "RESET", "PING 2"), 1)
		},
		"monitor while off": func(s *proxytest.Side, _ int) {
			c := s.Client("a")
			c.Raw(proxytest.Inline("CLIENT REPLY OFF", "MONITOR", "PING", "RESET", "PING end"))
			c.Until("end")
		},
		"pin after off": func(s *proxytest.Side, _ int) {
			c := s.Client("a")
			c.Raw(proxytest.Inline("CLIENT REPLY OFF", "MULTI", "SET k v", "EXEC", "BLPOP l 0.01", "HELLO 3", "CLIENT ID", "HGETALL h", "CLIENT REPLY ON", "HGETALL h", "GET k"))
			c.Expect(3)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Compare(t, func(s *proxytest.Side) { script(s, 2) }) })
	}
}

func TestClientCommandsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]func(s *proxytest.Side, proto int){
		"names": func(s *proxytest.Side, proto int) {
			a, c := s.Speaking("a", proto), s.Speaking("c", proto)
			a.Raw(proxytest.Inline("CLIENT GETNAME", "CLIENT SETNAME one", "CLIENT GETNAME", "CLIENT SETNAME", `CLIENT SETNAME "with space"`, `CLIENT SETNAME "\x80"`, "CLIENT GETNAME",
				"CLIENT GETNAME x", `CLIENT SETNAME ""`, "CLIENT GETNAME", "CLIENT SETNAME two", "MULTI", "CLIENT GETNAME", "EXEC", "CLIENT ID x", "CLIENT GETNAME", "HELLO 2 SETNAME three", "CLIENT GETNAME"))
			s.HideHelloID()
			a.Expect(18)
			a.Quiet("CLIENT", "ID") // pinned now
			a.Together("CLIENT GETNAME", "CLIENT SETNAME four", "CLIENT GETNAME", "CLIENT SETINFO lib-name x", "CLIENT NO-EVICT on", "CLIENT NO-TOUCH on", "RESET", "CLIENT GETNAME")
			c.Do("CLIENT", "GETNAME")
			list := c.Quiet("CLIENT", "LIST")
			s.Note("four: %v", strings.Contains(list, "name=four"))
		},
		"the name shows where the client has a connection of its own": func(s *proxytest.Side, proto int) {
			a, c := s.Speaking("a", proto), s.Speaking("c", proto)
			a.Do("CLIENT", "SETNAME", "blocked")
			a.Send("BLPOP", "l", "0")
			s.AwaitBlocked(1)
			list := c.Quiet("CLIENT", "LIST")
			s.Note("blocked: %v", strings.Contains(list, "name=blocked"))
			c.Do("RPUSH", "l", "x")
			a.Expect(1)
			a.Do("CLIENT", "GETNAME")
			c.Do("CLIENT", "GETNAME")
			c.Together("MULTI", "CLIENT GETNAME", "EXEC")
		},
		"id stays": func(s *proxytest.Side, proto int) {
			a := s.Speaking("a", proto)
			id := a.Quiet("CLIENT", "ID")
			for _, cmd := range []string{"PING", "BLPOP l 0.01", "SELECT 1", "MULTI", "EXEC", "HELLO 3", "HELLO 2"} {
				a.Quiet(strings.Fields(cmd)...)
				s.Note("same after %s: %v", cmd, a.Quiet("CLIENT", "ID") == id)
			}
			a.Note(slices.Collect(strings.SplitSeq(a.Quiet("CLIENT", "INFO"), "id="+strings.Trim(id, ":\r\n")+" "))[0][:1], nil)
		},
		"kill": func(s *proxytest.Side, proto int) {
			a, c := s.Speaking("a", proto), s.Speaking("c", proto)
			id := strconv.Itoa(proxytest.Integer(s.T, a.Quiet("CLIENT", "ID")))
			c.Do("CLIENT", "KILL", "ID", id)
			a.End()
			c.Each("CLIENT KILL ID "+id, "CLIENT KILL ID", "CLIENT KILL nosuch:1")
			id = strconv.Itoa(proxytest.Integer(s.T, c.Quiet("CLIENT", "ID")))
			c.Raw(proxytest.Inline("SET k v", "CLIENT KILL ID "+id+" SKIPME no", "GET k"))
			c.End()
		},
		"kill within a pipeline": func(s *proxytest.Side, proto int) {
			c := s.Speaking("c", proto)
			id := strconv.Itoa(proxytest.Integer(s.T, c.Quiet("CLIENT", "ID")))
			c.Raw(strings.Repeat(proxytest.Inline("ECHO "+strings.Repeat("x", 1000)), 500) + proxytest.Inline("CLIENT KILL ID "+id+" SKIPME no"))
			c.End()
		},
		"wrong ones": func(s *proxytest.Side, proto int) {
			c := s.Speaking("c", proto)
			c.Together("CLIENT", "CLIENT NOSUCH", "CLIENT ID x", "CLIENT HELP x", "CLIENT HELP", "CLIENT MAINT_NOTIFICATIONS ON", "CLIENT SETINFO lib-name x", "client setInfo lib-name x", "client setName x", "CLIENT CACHING yes",
				"CLIENT TRACKING maybe", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT UNBLOCK x", "CLIENT REPLY", "CLIENT REPLY x y", "CLIENT NO-EVICT x", "CLIENT LIST TYPE x", "CLIENT PAUSE x", "CLIENT UNPAUSE")
			c.Sync()
		},
		"post": func(s *proxytest.Side, proto int) {
			for _, line := range []string{"POST / HTTP/1.1", "Host: redis"} {
				c := s.Speaking("c", proto)
				c.Do("SET", "k", "v")
				c.Raw(proxytest.Inline(line, "SET k w", "GET k"))
				c.End()
				s.Speaking("d", proto).Do("GET", "k")
			}
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Both(t, script) })
	}
}

func TestTrackingIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	scripts := map[string]func(s *proxytest.Side){
		"invalidations between replies": func(s *proxytest.Side) {
			a, c := s.Speaking("a", 3), s.Speaking("c", 3)
			a.Together("CLIENT TRACKING ON", "GET k", "GET l")
			c.Do("SET", "k", "1")
			a.Expect(1)
			a.Raw(proxytest.Inline("GET k", "SET k 2", "GET k", "MULTI", "GET m", "SET k 3", "SET m 1", "EXEC", "GET k", "CLIENT TRACKINGINFO"))
			a.Until("redirect")
			c.Do("FLUSHALL")
			a.Expect(1)
			a.Together("CLIENT TRACKING OFF", "GET k")
			c.Do("SET", "k", "1")
			a.Sync()
		},
		"opt-in, broadcast, noloop": func(s *proxytest.Side) {
			a, c := s.Speaking("a", 3), s.Speaking("c", 3)
			a.Together("CLIENT TRACKING ON OPTIN NOLOOP", "GET x", "CLIENT CACHING YES", "GET k", "SET k 0", "CLIENT TRACKING OFF", "CLIENT TRACKING ON BCAST PREFIX u: PREFIX v:")
			c.Do("SET", "u:1", "1")
			a.Expect(1)
			c.Do("SET", "w:1", "1")
			a.Sync()
		},
		"an empty command ends what CACHING says of the next one": func(s *proxytest.Side) {
			for _, empty := range []string{"", "*0", "*-1"} {
				a, c := s.Speaking("a", 3), s.Speaking("c", 3)
				a.Raw(proxytest.Inline("CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", empty, "GET k", "CLIENT CACHING YES", "GET l"))
				a.Expect(5)
				a.Together("CLIENT CACHING YES")
				a.Raw(proxytest.Inline(empty, "GET m", "MULTI", "CLIENT CACHING YES", empty, "GET n", "EXEC"))
				a.Expect(5)
				c.Do("MSET", "k", "1", "l", "1", "m", "1", "n", "1")
				a.Sync()
			}
		},
		"to another connection": func(s *proxytest.Side) {
			a, r, c := s.Client("a"), s.Client("r"), s.Client("c")
			id := strconv.Itoa(proxytest.Integer(s.T, r.Quiet("CLIENT", "ID")))
			r.Send("SUBSCRIBE", "__redis__:invalidate")
			r.Expect(1)
			a.Each("CLIENT TRACKING ON REDIRECT "+id, "GET k")
			c.Do("SET", "k", "1")
			r.Expect(1)
			r.Sync()
			a.Do("GET", "k")
			_ = r.Conn.Close()
			proxytest.WaitFor(s.T, "the redirection to be broken", func() bool {
				return strings.Contains(a.Quiet("CLIENT", "TRACKINGINFO"), "broken") || !strings.Contains(c.Quiet("CLIENT", "LIST"), "id="+id+" ")
			})
			c.Do("SET", "k", "2")
			a.Do("GET", "k")
		},
		"with subscriptions": func(s *proxytest.Side) {
			a, c := s.Speaking("a", 3), s.Speaking("c", 3)
			a.Together("CLIENT TRACKING ON", "SUBSCRIBE ch", "GET k")
			for range 20 {
				c.Together("SET k v", "PUBLISH ch m")
				a.Expect(2)
				a.Do("GET", "k")
			}
			a.Together("UNSUBSCRIBE", "GET k")
			c.Do("SET", "k", "w")
			a.Expect(1)
		},
		"ends with reset": func(s *proxytest.Side) {
			a, c := s.Speaking("a", 3), s.Speaking("c", 3)
			a.Together("CLIENT TRACKING ON", "GET k", "RESET", "GET k")
			c.Do("SET", "k", "w")
			a.Sync()
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Compare(t, script) })
	}
}

func TestMonitorIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	b.Both(t, func(s *proxytest.Side, proto int) {
		s.Hide(`\+\d+\.\d+ \[(\d+) [^\]]*\]`, "+TIME [$1 ADDR]")
		s.Ignored = regexp.MustCompile(`^\+\d+\.\d+ \[\d+ [^\]]*\] "HELLO"`) // of another connection of the proxy, on a busy machine
		a, c := s.Speaking("a", proto), s.Speaking("c", proto)
		c.Do("GET", "k") // each event loop has its own lane, whose first words are not to be seen
		a.Together("PING before", "MONITOR")
		c.Do("SET", "k", "a b\x00\xff")
		a.Expect(1)
		a.Raw(proxytest.Inline("GET k", "PING", "SELECT 3", "RESET", "GET k", "PING", "SET k v", "GET k"))
		a.Until("$1\r\nv")
		c.Do("PING")
		a.Sync()
		a.Raw(proxytest.Inline("MONITOR", "QUIT"))
		a.End()
	})
}

func TestEveryKindOfDataPassesUnchanged(t *testing.T) {
	t.Parallel()
	b := proxytest.NewBench(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := string(every)
	scripts := map[string]func(s *proxytest.Side, proto int){
		"binary": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			for _, v := range []string{binary, "", "\r\n", "$-1\r\n", "*3\r\n", strings.Repeat("x", 1<<16), strings.Repeat(binary, 1<<11)} {
				c.Do("SET", v[:min(len(v), 100)], v)
				c.Do("GET", v[:min(len(v), 100)])
				c.Do("ECHO", v)
				dump := c.Quiet("DUMP", v[:min(len(v), 100)])
				_, dump, _ = strings.Cut(dump, "\r\n")
				c.Do("RESTORE", "copy", "0", dump[:len(dump)-2], "REPLACE")
				c.Each("GET copy", "OBJECT ENCODING copy")
			}
		},
		"every shape of reply": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("HSET h a 1 b 2", "HGETALL h", "HRANDFIELD h 2 WITHVALUES", "SADD s 1 2 3", "SMEMBERS s", "SMISMEMBER s 1 9", "ZADD z 1.5 a inf b", "ZRANGE z 0 -1 WITHSCORES", "ZSCORE z b", "ZMSCORE z a x",
				"ZPOPMIN z", "ZPOPMIN z 5", "LPOP l", "LPOP l 2", "GETEX k", "MGET k h", "TYPE h", "CONFIG GET maxmemory*", "COMMAND COUNT x", "OBJECT HELP", "XADD x 1-1 f v", "XRANGE x - +", "XREAD STREAMS x 0",
				"XINFO STREAM x", "GEOADD g 1 1 p", "GEOPOS g p q", "LCS a b", "ZADD z INCR 1 a", "SET k v GET", "BITFIELD b SET u8 0 200 GET u8 0", "DEBUG JMAP", "INCRBYFLOAT f 1e2", "SINTERCARD 1 s", "MEMORY DOCTOR x", "ACL CAT x", "ACL WHOAMI", "LATENCY LATEST", "SLOWLOG GET", "PUBSUB NUMPAT")
		},
		"scripts and functions": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			for _, script := range []string{
				"return 1", "return {1,2,{3,'x',{ok='fine'}},false,true,3.99}", "return {err='MY error'}", "return redis.error_reply('x')", "return redis.status_reply('x')",
				"redis.setresp(3); return redis.call('HGETALL','h')", "return {double=3.5}", "return {map={a=1}}", "return {big_number='123'}", "return {big_number='abc'}", "return {big_number='1\\r\\n2'}", "return {map={[1]={big_number=''}, [2]={double=0/0}}}", "return {double=-1/0}", "return {verbatim_string={format='txt',string='x'}}", "return {set={a=true}}",
				"error('x')", "return redis.call('NOSUCH')", "return redis.pcall('GET')", "return redis.call('CLIENT','ID')", "return redis.call('BLPOP','l',0)", "return redis.call('SUBSCRIBE','l')", "syntax error", "local t = {} t[1] = t return t",
			} {
				c.Do("EVAL", script, "1", "h")
				c.Do("EVAL_RO", script, "1", "h")
			}
			sha := c.Do("SCRIPT", "LOAD", "return ARGV[1]")[5:45]
			c.Do("EVALSHA", sha, "0", binary)
			c.Each("SCRIPT EXISTS "+sha+" x", "SCRIPT KILL", "SCRIPT FLUSH SYNC")
			c.Do("EVALSHA", sha, "0")
			c.Do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function(keys, args) return {keys, args} end)")
			c.Each("FCALL f 1 k a", "FCALL_RO f 1 k a", "FUNCTION LIST", "FUNCTION DUMP")
			c.Each("FUNCTION DELETE lib", "FCALL f 0")
		},
		"databases": func(s *proxytest.Side, proto int) {
			a, c := s.Speaking("a", proto), s.Speaking("c", proto)
			a.Together("SET k 0", "SELECT 5", "SET k 5", "SELECT 99", "SELECT x", "SELECT", "SELECT 05", "GET k", "SWAPDB 0 5", "GET k", "SELECT 0", "GET k", "MOVE k 7", "SELECT 7", "GET k", "DBSIZE", "FLUSHDB", "DBSIZE", "COPY k l DB 3")
			c.Each("GET k", "SELECT 5", "GET k", "INFO keyspace")
		},
		"unknown": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("NOSUCH", "NOSUCH a b c", `"" a`, `"\x00\x01"`, strings.Repeat("x", 5000)+" y", "XSUBSCRIBE a", "GET k", "JSON.SET a $ 1", "LOCKX k", "SUBSCRIBEX", "ASKING", "READONLY", "READWRITE", "CLUSTER INFO", "SENTINEL MASTERS", "HIMPORT x", "DEBUG NOSUCH", "CONFIG NOSUCH", "CONFIG SET nosuch 1", "PING")
		},
		"commands about replication": func(s *proxytest.Side, proto int) {
			c := s.Speaking("a", proto)
			c.Together("ROLE", "WAIT 0 0", "FAILOVER ABORT", "REPLICAOF a", "PSYNC x", "REPLCONF", "REPLCONF x", "REPLCONF listening-port 1 x", "REPLCONF listening-port 1", "PING", "GET k")
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.Both(t, script) })
	}
}

// SHUTDOWN is Redis's to obey. A client that asked for it sees its connection end.
func TestShutdownReachesRedis(t *testing.T) {
	t.Parallel()
	srv := proxytest.Start(t, redistest.Start(t))
	c := srv.Dial(t)
	for _, refused := range [][2]string{{"x", "-ERR syntax error\r\n"}, {"ABORT", "-ERR No shutdown in progress.\r\n"}} {
		c.Script("SHUTDOWN "+refused[0], refused[1])
	}
	c.Send("SHUTDOWN", "NOSAVE")
	if got, err := c.Frame(); got != "" || err == nil {
		t.Errorf("SHUTDOWN was answered %q", got)
	}
	proxytest.WaitFor(t, "Redis to be gone", func() bool { return srv.Redis.Pid() == 0 })
}
