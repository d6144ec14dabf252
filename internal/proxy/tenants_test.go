package proxy

import (
	"strings"
	"testing"
	"time"

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
