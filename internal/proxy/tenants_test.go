package proxy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tenantRules are the ACL rules of docs/OPERATIONS.md for a user whose locks begin with a prefix.
func tenantRules(prefix string) []any {
	rules := []any{
		"resetkeys", "resetchannels", "-@all", "+evalsha", "+eval", "+publish", "+subscribe", "+unsubscribe", "+@hash", "+@list", "+@sortedset",
		"+get", "+set", "+del", "+exists", "+pexpire", "+pttl", "+time", "+ping", "+hello",
	}
	for _, pattern := range []string{
		"~P*", "~redisson_lock_queue:{P*", "~redisson_lock_queue:P*", "~redisson_lock_timeout:{P*", "~redisson_lock_timeout:P*",
		"~redisson_lock__channel:{P*", "~redisson_lock__channel:P*", "~lockproxy:fence",
		"&redisson_lock__channel:{P*", "&redisson_lock__channel:P*", "&lockproxy:lost:{P*", "&lockproxy:lost:P*", "&lockproxy:forced",
	} {
		rules = append(rules, strings.ReplaceAll(pattern, "P", prefix))
	}
	return rules
}

// TestTenantsDoNotReachEachOthersLocks uses every lock command as two users with the documented rights, and has each try
// what would disturb the other.
func TestTenantsDoNotReachEachOthersLocks(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		for _, tenant := range []string{"red", "blue"} {
			redis.Do(t, append([]any{"ACL", "SETUSER", tenant, "on", ">" + tenant}, tenantRules(tenant+":")...)...)
		}
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Locks.Lease = engine, 4*time.Second })
		as := func(tenant string) *peer {
			c := dialClient(t, address(srv))
			c.script("HELLO 3 AUTH "+tenant+" "+tenant, "%")
			return c
		}
		red, more, blue := as("red"), as("red"), as("blue")
		for _, k := range []string{"red:k", "red:{k}", "{red:k"} {
			if k == "{red:k" { // not of the prefix
				red.script("LOCK "+k, "-NOPERM")
				continue
			}
			fence := red.do("LOCK", k)
			red.script("LOCK "+k, fence, "EXTENDLOCK "+k+" PX 60000", ":1", "UNLOCK "+k, ":0", "LOCKINFO "+k, "%6", "LOCKLIST", "*1")
			// All ways to wait for it and to get it.
			for _, verb := range []string{"LOCK", "FAIRLOCK"} {
				more.send(verb, k, "WAIT", "8000")
				redistest.Eventually(t, patience, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
				red.script("UNLOCK "+k, ":1")
				if got, err := more.frame(); err != nil || got[0] != ':' {
					t.Fatalf("%s: %q, %v", verb, got, err)
				}
				more.script("UNLOCK "+k, ":1")
				red.script("FAIRLOCK "+k, ":")
			}
			awaitRenewal(t, redis, k, 1)
			for _, cmd := range []string{
				"LOCK NAME", "FAIRLOCK NAME", "TRYLOCK NAME", "UNLOCK NAME", "UNLOCK NAME OWNER x", "EXTENDLOCK NAME PX 1", "LOCKINFO NAME", "FORCEUNLOCK NAME",
				"RPUSH redisson_lock_queue:{NAME} ghost", "SET redisson_lock_queue:{NAME} x", "DEL redisson_lock_queue:{NAME}",
				"ZADD redisson_lock_timeout:{NAME} 1 ghost", "DEL redisson_lock_timeout:{NAME}", "PUBLISH redisson_lock__channel:{NAME} 0",
				"SUBSCRIBE redisson_lock__channel:{NAME}", "SUBSCRIBE lockproxy:lost:{NAME}", "DEL NAME", "HSET NAME x 1",
			} {
				if strings.Contains(k, "{") {
					cmd = strings.ReplaceAll(cmd, "{NAME}", "NAME")
				}
				blue.script(strings.ReplaceAll(cmd, "NAME", k), "-NOPERM")
			}
			blue.script("LOCKLIST", "*0")
			red.script("UNLOCK "+k, ":1", "PING", "+PONG")
		}
		redis.Do(t, "DEL", "blue:j")
		blue.script("LOCK blue:j", ":")
		redis.Do(t, "DEL", "blue:j")
		if push, err := blue.frame(); err != nil || !strings.Contains(push, "lock-lost") {
			t.Fatalf("%q, %v", push, err)
		}
	})
}

// TestQueueOfAnotherTypeIsNoQueue writes something else to the keys of the fair queue.
func TestQueueOfAnotherTypeIsNoQueue(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Locks.Lease = engine, 20*time.Second })
		for _, key := range []string{"redisson_lock_queue:{k}", "redisson_lock_timeout:{k}", "redisson_lock__channel:{k}"} {
			for _, write := range [][]any{{"SET", key, "x"}, {"HSET", key, "x", "y"}, {"SADD", key, "x"}, {"XADD", key, "*", "x", "y"}} {
				redis.Do(t, "FLUSHALL")
				redis.Do(t, write...)
				c, w := dialClient(t, address(srv)), dialClient(t, address(srv))
				c.script("LOCK k", ":", "LOCK k", ":", "LOCKINFO k", "*12", "EXTENDLOCK k PX 60000", ":1", "UNLOCK k", ":0", "UNLOCK k", ":1")
				c.script("LOCK k GRACE 0", ":")
				w.send("LOCK", "k")
				redistest.Eventually(t, patience, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
				c.script("UNLOCK k", ":1")
				if got, err := w.frame(); err != nil || got[0] != ':' {
					t.Fatalf("%v: %q, %v", write, got, err)
				}
				c.script("FORCEUNLOCK k", ":1", "LOCK k GRACE 0", ":")
				_ = c.nc.Close()
				w.script("LOCK k WAIT 8000", ":")
			}
		}
	})
}

// TestPoisonedFenceCounter writes what cannot be a fence to the counter, which everybody who locks may do.
func TestPoisonedFenceCounter(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Locks.Lease = engine, 20*time.Second })
		c, w := dialClient(t, address(srv)), dialClient(t, address(srv))
		var last int64
		fence := func(reply, what string) {
			t.Helper()
			n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimPrefix(reply, ":"), "\r\n"), 10, 64)
			if err != nil || n <= last || n > 1<<53 {
				t.Fatalf("%s: %q after %d", what, reply, last)
			}
			last = n
		}
		repairs := int64(0)
		for _, poison := range []string{
			"1e300", "inf", "-inf", "nan", "-nan", "text", "", "-5", "-1e300", "1.5", "9007199254740991", "9007199254740993", "9223372036854775807",
			"18446744073709551616", strings.Repeat("9", 400), "0x7fffffffffffffff", "\x00\x01", "HASH", "LIST", "STREAM",
		} {
			write := func() {
				redis.Do(t, "DEL", "lockproxy:fence")
				switch poison {
				case "HASH":
					redis.Do(t, "HSET", "lockproxy:fence", "a", "b")
				case "LIST":
					redis.Do(t, "RPUSH", "lockproxy:fence", "a")
				case "STREAM":
					redis.Do(t, "XADD", "lockproxy:fence", "*", "a", "b")
				default:
					redis.Do(t, "SET", "lockproxy:fence", poison)
				}
			}
			name := fmt.Sprintf("%.30q", poison)
			for _, verb := range []string{"LOCK", "TRYLOCK", "FAIRLOCK"} {
				write()
				fence(c.do(verb, "k"), name+" "+verb)
				for range 3 { // and on from there
					fence(w.do("LOCK", uuid.NewString()), name+" others")
				}
				write()
				w.send(verb, "k", "WAIT", "8000") // by a hand-over
				redistest.Eventually(t, patience, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
				c.script("UNLOCK k", ":1")
				got, err := w.frame()
				if err != nil {
					t.Fatal(err)
				}
				fence(got, name+" hand-over")
				w.script("UNLOCK k", ":1")
				repairs += 2
			}
		}
		if got := srv.Stats().FencesRepaired; got != repairs {
			t.Errorf("%d repairs counted, want %d", got, repairs)
		}
		// What may have been a fence is one: clocks jump.
		for _, ahead := range []int64{last + 1e6, last + 3.6e9, 4e15, 8e15} {
			redis.Do(t, "SET", "lockproxy:fence", ahead)
			last = ahead
			fence(c.do("LOCK", uuid.NewString()), "ahead")
		}
	})
}
