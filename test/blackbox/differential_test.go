package blackbox

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"github.com/lockproxy/lockproxy/internal/commands"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/resp"
	"github.com/lockproxy/lockproxy/internal/upstream"
)

// How long TestDifferential runs, and where it starts. By default it is a fixed number of rounds of a fixed seed.
var (
	differentialDuration = flag.Duration("differential.duration", 0, "how long random commands are compared; 0: a fixed number of rounds")
	differentialSeed     = flag.Uint64("differential.seed", 1, "seed of the first round")
)

// differentialRounds is how many rounds there are without -differential.duration.
const differentialRounds = 150

// Random commands, valid and not, in random pieces: the bytes that come back through the proxy are those that come back
// directly. Round n of seed s is always the same.
func TestDifferential(t *testing.T) {
	t.Parallel()
	// Timeouts and the order of hash tables must not depend on when Redis gets to its housekeeping.
	b := newBench(t, "--hz", "500", "--activerehashing", "no")
	g := newGenerator(t, b.Redis)
	direct := proxytest.Dial(t, b.Redis.Addr())
	proxied := []*proxytest.Client{b.Dial(t), proxytest.Dial(t, b.sides(b.Proxy)["proxy, TLS"])}
	start := time.Now()
	for n := uint64(0); *differentialDuration > 0 && time.Since(start) < *differentialDuration || *differentialDuration == 0 && n < differentialRounds; n++ {
		seed := *differentialSeed + n
		round := g.round(rand.New(rand.NewPCG(seed, 0)))
		b.clean(t)
		want := round.play(direct, false)
		b.clean(t)
		got := round.play(proxied[seed%2], true)
		if got == want {
			continue
		}
		at := 0
		for at < min(len(got), len(want)) && got[at] == want[at] {
			at++
		}
		t.Fatalf("-differential.seed=%d: after %q\ndirect:  %q\nproxied: %q\ncommands:\n%s", seed, want[max(0, at-200):at], clip(want[at:]), clip(got[at:]), round)
	}
}

func clip(s string) string { return s[:min(len(s), 300)] }

// round is a series of commands and how they are cut.
type round struct {
	commands [][]string
	cuts     *rand.Rand
	word     string
}

func (r *round) String() string {
	var b strings.Builder
	for _, cmd := range r.commands {
		fmt.Fprintf(&b, "%q\n", cmd)
	}
	return b.String()
}

// What differs between connections: their ids, and the order in which UNSUBSCRIBE goes through a table that is as large as it
// ever was.
var (
	ids          = regexp.MustCompile(`\$2\r\nid\r\n:\d+`)
	unsubscribed = regexp.MustCompile(`(?s)(\$1[12]\r\n[ps]?unsubscribe)\r\n\$\d+\r\n.*?\r\n:`)
)

// play sends the round and returns everything that came back, up to the echo of its last word.
func (r *round) play(c *proxytest.Client, cut bool) string {
	c.T.Helper()
	var raw []byte
	for _, cmd := range r.commands {
		raw = resp.AppendCommand(raw, cmd...)
	}
	raw = resp.AppendCommand(raw, "RESET")
	raw = resp.AppendCommand(raw, "ECHO", r.word)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for len(raw) > 0 {
			n := len(raw)
			if cut {
				switch r.cuts.IntN(4) {
				case 0:
					n = 1 + r.cuts.IntN(min(n, 8))
				case 1:
					n = 1 + r.cuts.IntN(min(n, 200))
				}
			}
			c.Raw(string(raw[:n]))
			raw = raw[n:]
		}
	}()
	end := resp.AppendCommand(nil, r.word)[len("*1\r\n"):]
	for !bytes.HasSuffix(c.Buf, end) {
		if err := c.More(); err != nil {
			c.T.Errorf("%s ended with %v", c.Conn.RemoteAddr(), err)
			break
		}
	}
	<-done
	got := string(c.Buf)
	c.Buf = nil
	return unsubscribed.ReplaceAllString(ids.ReplaceAllString(got, "id"), "$1 :")
}

// generator makes commands.
type generator struct {
	commands []*commands.Command
}

// left out are commands that stop or stall the server, change how it serves everybody, or answer with what differs from run
// to run: times, random choices, addresses, counters. Named tests cover those that say something about the connection.
var leftOut = []string{
	"shutdown", "debug", "failover", "replicaof", "slaveof", "sync", "psync", "replconf", "monitor", "save", "bgsave", "bgrewriteaof", "migrate", "module", "quit",
	"lastsave", "time", "ttl", "pttl", "expiretime", "pexpiretime", "randomkey", "srandmember", "spop", "hrandfield", "zrandmember", "lolwut",
	"info", "role", "slowlog", "latency", "memory", "command", "dump", "xinfo", "xpending", "xautoclaim", "pfdebug", "pfselftest", "post", "host:",
	"acl|genpass", "acl|log", "acl|setuser", "acl|deluser", "acl|load", "acl|save", "acl|list", "config|set", "config|rewrite", "config|resetstat", "config|get",
	"object|idletime", "object|freq", "script|debug", "script|kill", "function|kill", "function|stats", "cluster|reset", "cluster|meet",
	"pubsub|channels", "pubsub|shardchannels", // in the order of a table that remembers earlier rounds
	"client|id", "client|list", "client|info", "client|kill", "client|pause", "client|unpause", "client|unblock", "client|caching", "client|help",
}

func isLeftOut(cmd []string) bool {
	name := strings.ToLower(cmd[0])
	return slices.Contains(leftOut, name) || len(cmd) > 1 && slices.Contains(leftOut, name+"|"+strings.ToLower(cmd[1]))
}

func newGenerator(t *testing.T, redis *redistest.Server) *generator {
	t.Helper()
	up, err := upstream.New(upstream.Options{Addr: redis.Addr(), DialTimeout: proxytest.Patience, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = up.Run(ctx) // it only ends when told to
	}()
	proxytest.WaitFor(t, "Redis's commands", func() bool {
		ready, _ := up.Ready()
		return ready
	})
	cancel()
	<-done
	g := &generator{}
	for _, c := range up.Commands().All() {
		if !slices.Contains(leftOut, c.Name) {
			g.commands = append(g.commands, c)
		}
	}
	return g
}

var (
	keys  = []string{"a", "b", "c", "{x}1", "{x}2", "", "bin\x00\r\n"}
	words = []string{ // a pattern of channels does not match lockproxy:wait, which every client may hear (docs/DIVERGENCE.md)
		"0", "1", "2", "-1", "3", "10", "1.5", "-0.5", "inf", "nan", "x", "", "9223372036854775807", "-9223372036854775808", "9999999999999999999", "1e400", "  1", "01",
		"NX", "XX", "GT", "LT", "CH", "INCR", "GET", "KEEPTTL", "LIMIT", "WITHSCORES", "BYSCORE", "BYLEX", "REV", "MATCH", "COUNT", "TYPE", "STORE", "LEFT", "RIGHT", "MIN", "MAX", "BEFORE", "AFTER",
		"STREAMS", "GROUP", "NOACK", "MKSTREAM", "AGGREGATE", "SUM", "WEIGHTS", "ASC", "DESC", "ALPHA", "BY", "#", "-", "+", "(1", "[a", "~", "=", "MAXLEN", "MINID", "BIT", "BYTE", "AND", "XOR", "u8", "i64", "OVERFLOW", "SET",
		"FROMMEMBER", "FROMLONLAT", "BYRADIUS", "km", "1-1", "0-0", "2-2", "WITHVALUES", "REPLACE", "PERSIST", "LEN", "IDX", "*b*", "?", "string", "list", "\x00\xff\r\n$3\r\n", "value with spaces",
	}
	scripts = []string{
		"return 1", "return {1,2,{3,'x'},false,true}", "return redis.call('SET',KEYS[1] or 'k','v')", "return redis.call('GET',KEYS[1])", "return redis.error_reply('BAD x')", "error('x')", "x x",
		"redis.setresp(3) return redis.call('HGETALL','a')", "return {double=1.5}", "return redis.pcall('NOSUCH')", "return ARGV", "return redis.call('SUBSCRIBE','a')", "return redis.call('BLPOP','a',0)",
	}
	// valid commands, so that there is something to answer with. K, F, V and N are filled in.
	templates = strings.Split(`SET K V|GET K|APPEND K V|INCR K|INCRBYFLOAT K 1.5|SETRANGE K 3 V|GETRANGE K 0 -1|MSET K V K V|MGET K K K|GETDEL K|STRLEN K|SETBIT K 7 1|BITCOUNT K|BITFIELD K INCRBY u8 0 200 GET i4 1|LCS K K
LPUSH K V V V|RPUSH K V V|LPOP K|RPOP K 2|LRANGE K 0 -1|LINSERT K BEFORE V V|LREM K 0 V|LMOVE K K LEFT RIGHT|LMPOP 2 K K LEFT|LPOS K V|LTRIM K 1 2|LSET K 0 V
HSET K F V F V|HGET K F|HGETALL K|HMGET K F F|HDEL K F|HINCRBY K F N|HKEYS K|HVALS K|HSCAN K 0|HSETNX K F V|HSTRLEN K F
SADD K V V V|SREM K V|SMEMBERS K|SISMEMBER K V|SMISMEMBER K V V|SINTER K K|SUNIONSTORE K K K|SDIFF K K|SCARD K|SMOVE K K V|SSCAN K 0|SINTERCARD 2 K K
ZADD K N V N V|ZADD K INCR N V|ZRANGE K 0 -1 WITHSCORES|ZRANGEBYSCORE K -inf +inf|ZSCORE K V|ZMSCORE K V V|ZPOPMIN K 2|ZUNION 2 K K WITHSCORES|ZINTERSTORE K 2 K K|ZRANK K V|ZINCRBY K N V|ZSCAN K 0|ZMPOP 1 K MIN|ZREMRANGEBYRANK K 0 0
XADD K 1-1 F V|XADD K 5-1 F V F V|XRANGE K - +|XREVRANGE K + - COUNT 1|XLEN K|XREAD COUNT 2 STREAMS K 0|XGROUP CREATE K g 0 MKSTREAM|XREADGROUP GROUP g me STREAMS K >|XACK K g 1-1|XDEL K 1-1|XTRIM K MAXLEN 1
GEOADD K 13.3 38.1 V 15.0 37.5 F|GEOPOS K V F|GEODIST K V F km|GEOSEARCH K FROMLONLAT 15 37 BYRADIUS 200 km ASC WITHDIST|PFADD K V V|PFCOUNT K K|PFMERGE K K
DEL K|EXISTS K K|TYPE K|RENAME K K|COPY K K REPLACE|OBJECT ENCODING K|EXPIRE K 100000|PERSIST K|KEYS *|SCAN 0|DBSIZE|SORT K ALPHA|TOUCH K|UNLINK K|MOVE K 1|SWAPDB 0 1|FLUSHDB|RESTORE K 0 V
MULTI|EXEC|DISCARD|WATCH K|UNWATCH|MULTI|EXEC|SELECT 1|SELECT 0|SELECT 77|HELLO 2|HELLO 3|HELLO|HELLO 3 SETNAME n|HELLO 9|RESET|AUTH x|AUTH default x|PING|PING V|ECHO V|ACL WHOAMI
CLIENT SETNAME n|CLIENT GETNAME|CLIENT REPLY ON|CLIENT REPLY OFF|CLIENT REPLY SKIP|CLIENT NO-EVICT on|CLIENT GETREDIR|CLIENT TRACKINGINFO|CLIENT TRACKING ON|CLIENT TRACKING OFF|CLIENT TRACKING ON NOLOOP
SUBSCRIBE F V|UNSUBSCRIBE|UNSUBSCRIBE F|PSUBSCRIBE F*|PUNSUBSCRIBE|SSUBSCRIBE F|SUNSUBSCRIBE|PUBLISH F V|SPUBLISH F V|PUBSUB NUMSUB F
BLPOP K K 0.001|BRPOP K 0.001|BLMOVE K K LEFT RIGHT 0.001|BLMPOP 0.001 1 K LEFT|BRPOPLPUSH K K 0.001|BZPOPMIN K 0.001|BZMPOP 0.001 1 K MAX|XREAD BLOCK 1 STREAMS K $|WAIT 0 1|WAIT 1 1
NOSUCH|GET|GET K K|SET K V BAD|LPUSH K|CLIENT|CLIENT NOSUCH|XGROUP NOSUCH|COMMANDX V V|SUBSCRIBE|CLIENT REPLY BAD|MULTI V|EXEC V`, "|")
)

func init() {
	templates = strings.Split(strings.ReplaceAll(strings.Join(templates, "|"), "\n", "|"), "|")
}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

var neverInTx = slices.Clip([]string{"REPLY", "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE", "UNSUBSCRIBE", "PUNSUBSCRIBE", "SUNSUBSCRIBE", "HELLO", "AUTH", "SETNAME", "SETINFO", "GETREDIR", "TRACKINGINFO"})

func (g *generator) round(r *rand.Rand) *round {
	ro := &round{cuts: rand.New(rand.NewPCG(r.Uint64(), 1)), word: fmt.Sprintf("the-end-%x", r.Uint64())}
	// These are refused inside a transaction, or AUTH ends the connection (docs/DIVERGENCE.md), so a round has one or the other.
	// Redis remembers what a connection has read with tracking on, even after a RESET (docs/DIVERGENCE.md).
	avoid := append(pick(r, [][]string{{"MULTI"}, neverInTx}), pick(r, []string{"RESET", "TRACKING"}))
	for range 1 + r.IntN(60) {
		cmd := g.command(r)
		if isLeftOut(cmd) {
			continue // arguments may have made it one
		}
		if slices.ContainsFunc(cmd[:min(2, len(cmd))], func(arg string) bool {
			return slices.ContainsFunc(avoid, func(word string) bool { return strings.EqualFold(arg, word) })
		}) {
			continue
		}
		ro.commands = append(ro.commands, cmd)
	}
	return ro
}

func (g *generator) command(r *rand.Rand) []string {
	if r.IntN(3) > 0 {
		return g.fill(r)
	}
	c := pick(r, g.commands)
	args := []string{c.Name}
	if subs := slices.Sorted(mapKeys(c.Subcommands)); len(subs) > 0 && r.IntN(8) > 0 {
		sub := pick(r, subs)
		if slices.Contains(leftOut, c.Name+"|"+sub) {
			return g.fill(r)
		}
		args = append(args, sub)
	} else if len(subs) > 0 {
		return append(args, "nosuch")
	}
	n := max(c.Arity, -c.Arity) - len(args)
	if r.IntN(6) == 0 {
		n += r.IntN(4) - 1
	} else if c.Arity < 0 {
		n += r.IntN(4)
	}
	for range max(n, 0) {
		args = append(args, g.argument(r))
	}
	return tame(r, c, args)
}

func mapKeys[V any](m map[string]V) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}

// tame keeps a command from waiting for ever, and from letting Redis or the clock choose.
func tame(r *rand.Rand, c *commands.Command, args []string) []string {
	switch c.Name {
	case "blpop", "brpop", "blmove", "brpoplpush", "bzpopmin", "bzpopmax":
		args[len(args)-1] = "0.001"
	case "blmpop", "bzmpop":
		if len(args) > 1 {
			args[1] = "0.001"
		}
	case "wait", "waitaof":
		return []string{c.Name, pick(r, []string{"0", "1", "x"}), pick(r, []string{"1", "x", "-1"})}
	case "eval", "eval_ro", "fcall", "fcall_ro", "function", "script":
		if len(args) > 1 && c.Name[0] == 'e' {
			args[1] = pick(r, scripts)
		}
	case "expire", "pexpire", "expireat", "pexpireat", "set", "setex", "psetex", "getex", "restore":
		return []string{c.Name, pick(r, keys), pick(r, []string{"100000", "x", "-1", "0"}), pick(r, words)}
	case "select", "swapdb", "move":
		for i := range args[1:] {
			args[1+i] = pick(r, []string{"0", "1", "2", "99", "x", args[1+i]})
		}
	}
	return args
}

func (g *generator) argument(r *rand.Rand) string {
	switch r.IntN(8) {
	case 0, 1, 2:
		return pick(r, keys)
	case 3:
		return strings.Repeat("long", r.IntN(2000))
	}
	return pick(r, words)
}

// fill makes a command of a template.
func (g *generator) fill(r *rand.Rand) []string {
	args := strings.Fields(pick(r, templates))
	for i, arg := range args {
		switch arg {
		case "K":
			args[i] = pick(r, keys)
		case "F":
			args[i] = pick(r, []string{"f", "g", "h"})
		case "N":
			args[i] = pick(r, []string{"1", "-2", "3.25"})
		case "V":
			args[i] = pick(r, words)
		default:
			if r.IntN(100) == 0 {
				args[i] = pick(r, words)
			}
		}
	}
	if len(args) > 1 && r.IntN(60) == 0 {
		args = args[:len(args)-1]
	}
	return tameTemplate(args)
}

// tameTemplate repairs what a random change may have done to a timeout.
func tameTemplate(args []string) []string {
	name := strings.ToLower(args[0])
	if strings.HasPrefix(name, "b") && !strings.HasPrefix(name, "bit") || name == "wait" || strings.HasPrefix(name, "xread") && len(args) > 1 && strings.EqualFold(args[1], "block") {
		for i, arg := range args[1:] {
			if arg == "0" || arg == "01" || arg == "10" || arg == "2" || arg == "3" || arg == "1.5" || len(arg) > 15 {
				args[1+i] = "0.002"
			}
		}
	}
	return args
}
