package proxy

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestReplyModesAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	// Every sequence of up to three modes with commands of each kind between and behind them.
	modes := []string{"CLIENT REPLY ON", "CLIENT REPLY OFF", "CLIENT REPLY SKIP", "CLIENT REPLY BAD", "client reply skip", "CLIENT REPLY"}
	between := []string{"SET k v", "CLIENT ID x", "WATCH k", "CLIENT SETNAME x", "SELECT 1", "NOSUCH", "RESET", "GET"}
	sequences := func(c *peer, proto int) {
		for _, first := range modes {
			for _, second := range modes {
				for i, cmd := range between {
					if cmd == "RESET" && proto == 3 {
						continue
					}
					end := fmt.Sprint("end-", first, second, i)
					c.raw(inline(first, cmd, second, "GET k", cmd, "DISCARD", "CLIENT REPLY ON", `ECHO "`+end+`"`))
					c.until(end)
				}
			}
		}
	}
	b.both(t, func(s *side, proto int) { sequences(s.speaking("a", proto), proto) })
	scripts := map[string]func(s *side, proto int){
		"skip twice": func(s *side, _ int) {
			s.client("a").steps(inline("CLIENT REPLY SKIP", "CLIENT REPLY SKIP", "PING 1", "PING 2"), 1)
		},
		"skip then off": func(s *side, _ int) {
			s.client("a").steps(inline("CLIENT REPLY SKIP", "CLIENT REPLY OFF", "PING 1", "CLIENT REPLY SKIP", "PING 2", "CLIENT REPLY ON", "PING 3"), 2)
		},
		"an empty command is skipped": func(s *side, _ int) {
			c := s.client("a")
			for _, empty := range []string{"\r\n", "*0\r\n", "*-1\r\n"} {
				c.steps(inline("CLIENT REPLY SKIP")+empty+inline("PING 1", "PING 2"), 2)
			}
		},
		"reset while off":  func(s *side, _ int) { s.client("a").steps(inline("CLIENT REPLY OFF", "PING 1", "RESET", "PING 2"), 2) },
		"reset while skip": func(s *side, _ int) { s.client("a").steps(inline("CLIENT REPLY SKIP", "RESET", "PING 2"), 1) },
		"monitor while off": func(s *side, _ int) {
			c := s.client("a")
			c.raw(inline("CLIENT REPLY OFF", "MONITOR", "PING", "RESET", "PING end"))
			c.until("end")
		},
		"pin after off": func(s *side, _ int) {
			c := s.client("a")
			c.raw(inline("CLIENT REPLY OFF", "MULTI", "SET k v", "EXEC", "BLPOP l 0.01", "HELLO 3", "CLIENT ID", "HGETALL h", "CLIENT REPLY ON", "HGETALL h", "GET k"))
			c.expect(3)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.compare(t, func(s *side) { script(s, 2) }) })
	}
}

// steps sends raw bytes and notes n frames, and that nothing follows.
func (c *peer) steps(raw string, n int) {
	c.t.Helper()
	c.raw(raw)
	c.expect(n)
	c.sync()
}

func TestClientCommandsAreRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *side, proto int){
		"names": func(s *side, proto int) {
			a, c := s.speaking("a", proto), s.speaking("c", proto)
			a.raw(inline("CLIENT GETNAME", "CLIENT SETNAME one", "CLIENT GETNAME", "CLIENT SETNAME", `CLIENT SETNAME "with space"`, `CLIENT SETNAME "\x80"`, "CLIENT GETNAME",
				"CLIENT GETNAME x", `CLIENT SETNAME ""`, "CLIENT GETNAME", "CLIENT SETNAME two", "MULTI", "CLIENT GETNAME", "EXEC", "CLIENT ID x", "CLIENT GETNAME", "HELLO 2 SETNAME three", "CLIENT GETNAME"))
			s.hideHelloID()
			a.expect(18)
			a.quiet("CLIENT", "ID") // pinned now
			a.raw(inline("CLIENT GETNAME", "CLIENT SETNAME four", "CLIENT GETNAME", "CLIENT SETINFO lib-name x", "CLIENT NO-EVICT on", "CLIENT NO-TOUCH on", "RESET", "CLIENT GETNAME"))
			a.expect(8)
			c.do("CLIENT", "GETNAME")
			list := c.quiet("CLIENT", "LIST")
			s.note("four: %v", strings.Contains(list, "name=four"))
		},
		"the name shows where the client has a connection of its own": func(s *side, proto int) {
			a, c := s.speaking("a", proto), s.speaking("c", proto)
			a.do("CLIENT", "SETNAME", "blocked")
			a.send("BLPOP", "l", "0")
			s.awaitBlocked(1)
			list := c.quiet("CLIENT", "LIST")
			s.note("blocked: %v", strings.Contains(list, "name=blocked"))
			c.do("RPUSH", "l", "x")
			a.expect(1)
			a.do("CLIENT", "GETNAME")
			c.do("CLIENT", "GETNAME")
			c.raw(inline("MULTI", "CLIENT GETNAME", "EXEC"))
			c.expect(3)
		},
		"id stays": func(s *side, proto int) {
			a := s.speaking("a", proto)
			id := a.quiet("CLIENT", "ID")
			for _, cmd := range []string{"PING", "BLPOP l 0.01", "SELECT 1", "MULTI", "EXEC", "HELLO 3", "HELLO 2"} {
				a.quiet(strings.Fields(cmd)...)
				s.note("same after %s: %v", cmd, a.quiet("CLIENT", "ID") == id)
			}
			a.note(slices.Collect(strings.SplitSeq(a.quiet("CLIENT", "INFO"), "id="+strings.Trim(id, ":\r\n")+" "))[0][:1], nil)
		},
		"kill": func(s *side, proto int) {
			a, c := s.speaking("a", proto), s.speaking("c", proto)
			id := strconv.Itoa(integer(s.t, a.quiet("CLIENT", "ID")))
			c.do("CLIENT", "KILL", "ID", id)
			a.end()
			c.do("CLIENT", "KILL", "ID", id)
			c.do("CLIENT", "KILL", "ID")
			c.do("CLIENT", "KILL", "nosuch:1")
			id = strconv.Itoa(integer(s.t, c.quiet("CLIENT", "ID")))
			c.raw(inline("SET k v", "CLIENT KILL ID "+id+" SKIPME no", "GET k"))
			c.end()
		},
		"kill within a pipeline": func(s *side, proto int) {
			c := s.speaking("c", proto)
			id := strconv.Itoa(integer(s.t, c.quiet("CLIENT", "ID")))
			c.raw(strings.Repeat(inline("ECHO "+strings.Repeat("x", 1000)), 500) + inline("CLIENT KILL ID "+id+" SKIPME no"))
			c.end()
		},
		"wrong ones": func(s *side, proto int) {
			c := s.speaking("c", proto)
			c.raw(inline("CLIENT", "CLIENT NOSUCH", "CLIENT ID x", "CLIENT HELP x", "CLIENT HELP", "CLIENT MAINT_NOTIFICATIONS ON", "CLIENT SETINFO lib-name x", "client setInfo lib-name x", "client setName x", "CLIENT CACHING yes",
				"CLIENT TRACKING maybe", "CLIENT GETREDIR", "CLIENT TRACKINGINFO", "CLIENT UNBLOCK x", "CLIENT REPLY", "CLIENT REPLY x y", "CLIENT NO-EVICT x", "CLIENT LIST TYPE x", "CLIENT PAUSE x", "CLIENT UNPAUSE"))
			c.expect(20)
			c.sync()
		},
		"post": func(s *side, proto int) {
			for _, line := range []string{"POST / HTTP/1.1", "Host: redis"} {
				c := s.speaking("c", proto)
				c.do("SET", "k", "v")
				c.raw(inline(line, "SET k w", "GET k"))
				c.end()
				s.speaking("d", proto).do("GET", "k")
			}
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.both(t, script) })
	}
}

func TestTrackingIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	scripts := map[string]func(s *side){
		"invalidations between replies": func(s *side) {
			a, c := s.speaking("a", 3), s.speaking("c", 3)
			a.raw(inline("CLIENT TRACKING ON", "GET k", "GET l"))
			a.expect(3)
			c.do("SET", "k", "1")
			a.expect(1)
			a.raw(inline("GET k", "SET k 2", "GET k", "MULTI", "GET m", "SET k 3", "SET m 1", "EXEC", "GET k", "CLIENT TRACKINGINFO"))
			a.until("redirect")
			c.do("FLUSHALL")
			a.expect(1)
			a.raw(inline("CLIENT TRACKING OFF", "GET k"))
			a.expect(2)
			c.do("SET", "k", "1")
			a.sync()
		},
		"opt-in, broadcast, noloop": func(s *side) {
			a, c := s.speaking("a", 3), s.speaking("c", 3)
			a.raw(inline("CLIENT TRACKING ON OPTIN NOLOOP", "GET x", "CLIENT CACHING YES", "GET k", "SET k 0", "CLIENT TRACKING OFF", "CLIENT TRACKING ON BCAST PREFIX u: PREFIX v:"))
			a.expect(7)
			c.do("SET", "u:1", "1")
			a.expect(1)
			c.do("SET", "w:1", "1")
			a.sync()
		},
		"an empty command ends what CACHING says of the next one": func(s *side) {
			for _, empty := range []string{"", "*0", "*-1"} {
				a, c := s.speaking("a", 3), s.speaking("c", 3)
				a.raw(inline("CLIENT TRACKING ON OPTIN", "CLIENT CACHING YES", empty, "GET k", "CLIENT CACHING YES", "GET l"))
				a.expect(5)
				a.raw(inline("CLIENT CACHING YES"))
				a.expect(1)
				a.raw(inline(empty, "GET m", "MULTI", "CLIENT CACHING YES", empty, "GET n", "EXEC"))
				a.expect(5)
				c.do("MSET", "k", "1", "l", "1", "m", "1", "n", "1")
				a.sync()
			}
		},
		"to another connection": func(s *side) {
			a, r, c := s.client("a"), s.client("r"), s.client("c")
			id := strconv.Itoa(integer(s.t, r.quiet("CLIENT", "ID")))
			r.send("SUBSCRIBE", "__redis__:invalidate")
			r.expect(1)
			a.do("CLIENT", "TRACKING", "ON", "REDIRECT", id)
			a.do("GET", "k")
			c.do("SET", "k", "1")
			r.expect(1)
			r.sync()
			a.do("GET", "k")
			_ = r.nc.Close()
			redistest.Eventually(s.t, patience, "the redirection to be broken", func() bool {
				return strings.Contains(a.quiet("CLIENT", "TRACKINGINFO"), "broken") || !strings.Contains(c.quiet("CLIENT", "LIST"), "id="+id+" ")
			})
			c.do("SET", "k", "2")
			a.do("GET", "k")
		},
		"with subscriptions": func(s *side) {
			a, c := s.speaking("a", 3), s.speaking("c", 3)
			a.raw(inline("CLIENT TRACKING ON", "SUBSCRIBE ch", "GET k"))
			a.expect(3)
			for range 20 {
				c.raw(inline("SET k v", "PUBLISH ch m"))
				c.expect(2)
				a.expect(2)
				a.do("GET", "k")
			}
			a.raw(inline("UNSUBSCRIBE", "GET k"))
			a.expect(2)
			c.do("SET", "k", "w")
			a.expect(1)
		},
		"ends with reset": func(s *side) {
			a, c := s.speaking("a", 3), s.speaking("c", 3)
			a.raw(inline("CLIENT TRACKING ON", "GET k", "RESET", "GET k"))
			a.expect(4)
			c.do("SET", "k", "w")
			a.sync()
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.compare(t, script) })
	}
}

func TestMonitorIsRedisOwn(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.both(t, func(s *side, proto int) {
		s.hide(`\+\d+\.\d+ \[(\d+) [^\]]*\]`, "+TIME [$1 ADDR]")
		s.ignored = regexp.MustCompile(`^\+\d+\.\d+ \[\d+ [^\]]*\] "HELLO"`) // of another connection of the proxy, on a busy machine
		a, c := s.speaking("a", proto), s.speaking("c", proto)
		c.do("GET", "k") // each event loop has its own lane, whose first words are not to be seen
		a.raw(inline("PING before", "MONITOR"))
		a.expect(2)
		c.do("SET", "k", "a b\x00\xff")
		a.expect(1)
		a.raw(inline("GET k", "PING", "SELECT 3", "RESET", "GET k", "PING", "SET k v", "GET k"))
		a.until("$1\r\nv")
		c.do("PING")
		a.sync()
		a.raw(inline("MONITOR", "QUIT"))
		a.end()
	})
}

func TestEveryKindOfDataPassesUnchanged(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	every := make([]byte, 256)
	for i := range every {
		every[i] = byte(i)
	}
	binary := string(every)
	scripts := map[string]func(s *side, proto int){
		"binary": func(s *side, proto int) {
			c := s.speaking("a", proto)
			for _, v := range []string{binary, "", "\r\n", "$-1\r\n", "*3\r\n", strings.Repeat("x", 1<<16), strings.Repeat(binary, 1<<11)} {
				c.do("SET", v[:min(len(v), 100)], v)
				c.do("GET", v[:min(len(v), 100)])
				c.do("ECHO", v)
				dump := c.quiet("DUMP", v[:min(len(v), 100)])
				_, dump, _ = strings.Cut(dump, "\r\n")
				c.do("RESTORE", "copy", "0", dump[:len(dump)-2], "REPLACE")
				c.do("GET", "copy")
				c.do("OBJECT", "ENCODING", "copy")
			}
		},
		"every shape of reply": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("HSET h a 1 b 2", "HGETALL h", "HRANDFIELD h 2 WITHVALUES", "SADD s 1 2 3", "SMEMBERS s", "SMISMEMBER s 1 9", "ZADD z 1.5 a inf b", "ZRANGE z 0 -1 WITHSCORES", "ZSCORE z b", "ZMSCORE z a x",
				"ZPOPMIN z", "ZPOPMIN z 5", "LPOP l", "LPOP l 2", "GETEX k", "MGET k h", "TYPE h", "CONFIG GET maxmemory*", "COMMAND COUNT x", "OBJECT HELP", "XADD x 1-1 f v", "XRANGE x - +", "XREAD STREAMS x 0",
				"XINFO STREAM x", "GEOADD g 1 1 p", "GEOPOS g p q", "LCS a b", "ZADD z INCR 1 a", "SET k v GET", "BITFIELD b SET u8 0 200 GET u8 0", "DEBUG JMAP", "INCRBYFLOAT f 1e2", "SINTERCARD 1 s", "MEMORY DOCTOR x", "ACL CAT x", "ACL WHOAMI", "LATENCY LATEST", "SLOWLOG GET", "PUBSUB NUMPAT"))
			c.expect(39)
		},
		"scripts and functions": func(s *side, proto int) {
			c := s.speaking("a", proto)
			for _, script := range []string{
				"return 1", "return {1,2,{3,'x',{ok='fine'}},false,true,3.99}", "return {err='MY error'}", "return redis.error_reply('x')", "return redis.status_reply('x')",
				"redis.setresp(3); return redis.call('HGETALL','h')", "return {double=3.5}", "return {map={a=1}}", "return {big_number='123'}", "return {big_number='abc'}", "return {big_number='1\\r\\n2'}", "return {map={[1]={big_number=''}, [2]={double=0/0}}}", "return {double=-1/0}", "return {verbatim_string={format='txt',string='x'}}", "return {set={a=true}}",
				"error('x')", "return redis.call('NOSUCH')", "return redis.pcall('GET')", "return redis.call('CLIENT','ID')", "return redis.call('BLPOP','l',0)", "return redis.call('SUBSCRIBE','l')", "syntax error", "local t = {} t[1] = t return t",
			} {
				c.do("EVAL", script, "1", "h")
				c.do("EVAL_RO", script, "1", "h")
			}
			sha := c.do("SCRIPT", "LOAD", "return ARGV[1]")[5:45]
			c.do("EVALSHA", sha, "0", binary)
			c.do("SCRIPT", "EXISTS", sha, "x")
			c.do("SCRIPT", "KILL")
			c.do("SCRIPT", "FLUSH", "SYNC")
			c.do("EVALSHA", sha, "0")
			c.do("FUNCTION", "LOAD", "#!lua name=lib\nredis.register_function('f', function(keys, args) return {keys, args} end)")
			c.do("FCALL", "f", "1", "k", "a")
			c.do("FCALL_RO", "f", "1", "k", "a")
			c.do("FUNCTION", "LIST")
			c.do("FUNCTION", "DUMP")
			c.do("FUNCTION", "DELETE", "lib")
			c.do("FCALL", "f", "0")
		},
		"databases": func(s *side, proto int) {
			a, c := s.speaking("a", proto), s.speaking("c", proto)
			a.raw(inline("SET k 0", "SELECT 5", "SET k 5", "SELECT 99", "SELECT x", "SELECT", "SELECT 05", "GET k", "SWAPDB 0 5", "GET k", "SELECT 0", "GET k", "MOVE k 7", "SELECT 7", "GET k", "DBSIZE", "FLUSHDB", "DBSIZE", "COPY k l DB 3"))
			a.expect(19)
			c.do("GET", "k")
			c.do("SELECT", "5")
			c.do("GET", "k")
			c.do("INFO", "keyspace")
		},
		"unknown": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("NOSUCH", "NOSUCH a b c", `"" a`, `"\x00\x01"`, strings.Repeat("x", 5000)+" y", "XSUBSCRIBE a", "GET k", "JSON.SET a $ 1", "LOCKX k", "SUBSCRIBEX", "ASKING", "READONLY", "READWRITE", "CLUSTER INFO", "SENTINEL MASTERS", "HIMPORT x", "DEBUG NOSUCH", "CONFIG NOSUCH", "CONFIG SET nosuch 1", "PING"))
			c.expect(20)
		},
		"commands about replication": func(s *side, proto int) {
			c := s.speaking("a", proto)
			c.raw(inline("ROLE", "WAIT 0 0", "FAILOVER ABORT", "REPLICAOF a", "PSYNC x", "REPLCONF", "REPLCONF x", "REPLCONF listening-port 1 x", "REPLCONF listening-port 1", "PING", "GET k"))
			c.expect(11)
		},
	}
	for name, script := range scripts {
		t.Run(name, func(t *testing.T) { b.both(t, script) })
	}
}

// SHUTDOWN is Redis's to obey. A client that asked for it sees its connection end.
func TestShutdownReachesRedis(t *testing.T) {
	t.Parallel()
	for _, engine := range engineNames() {
		redis := redistest.Start(t)
		srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
		c := dialClient(t, address(srv))
		for _, refused := range [][2]string{{"x", "-ERR syntax error\r\n"}, {"ABORT", "-ERR No shutdown in progress.\r\n"}} {
			if got := c.quiet("SHUTDOWN", refused[0]); got != refused[1] {
				t.Errorf("SHUTDOWN %s: %q, want %q", refused[0], got, refused[1])
			}
		}
		c.send("SHUTDOWN", "NOSAVE")
		if got, err := c.frame(); got != "" || err == nil {
			t.Errorf("SHUTDOWN was answered %q", got)
		}
		redistest.Eventually(t, patience, "Redis to be gone", func() bool { return redis.Pid() == 0 })
	}
}
