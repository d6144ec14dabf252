package blackbox

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tenantRules are the ACL rules of docs/OPERATIONS.md for a user whose locks begin with a prefix.
func tenantRules(prefix string) []any {
	rules := []any{
		"resetkeys", "resetchannels", "-@all", "+evalsha", "+eval", "+publish", "+subscribe", "+unsubscribe", "+@hash", "+@list", "+@sortedset",
		"+get", "+set", "+del", "+exists", "+pexpire", "+pexpireat", "+pttl", "+time", "+ping", "+hello",
	}
	for _, pattern := range []string{
		"~P*", "~{P*", "~redisson_lock_queue:{P*", "~redisson_lock_queue:P*", "~redisson_lock_timeout:{P*", "~redisson_lock_timeout:P*",
		"~redisson_lock__channel:{P*", "~redisson_lock__channel:P*", "~lockproxy:fence",
		"&redisson_lock__channel:{P*", "&redisson_lock__channel:P*", "&redisson_rwlock:{P*", "&redisson_rwlock:P*", "&lockproxy:lost:{P*", "&lockproxy:lost:P*", "&lockproxy:forced",
	} {
		rules = append(rules, strings.ReplaceAll(pattern, "P", prefix))
	}
	return rules
}

// TestTenantsDoNotReachEachOthersLocks uses every lock command as two users with the documented rights, and has each try
// what would disturb the other.
func TestTenantsDoNotReachEachOthersLocks(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, tenant := range []string{"red", "blue"} {
		redis.Do(t, append([]any{"ACL", "SETUSER", tenant, "on", ">" + tenant}, tenantRules(tenant+":")...)...)
	}
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Locks.Lease = 4 * time.Second })
	as := func(tenant string) *proxytest.Client {
		c := srv.Dial(t)
		c.Script("HELLO 3 AUTH "+tenant+" "+tenant, "%")
		return c
	}
	red, more, blue := as("red"), as("red"), as("blue")
	for _, k := range []string{"red:k", "red:{k}", "{red:k"} {
		shared := red.Do("LOCK", k, "SHARED")
		red.Script("LOCK "+k+" SHARED", shared, "EXTENDLOCK "+k+" PX 60000", ":1", "UNLOCK "+k, ":0", "LOCKINFO "+k, "%11")
		more.Script("LOCK "+k+" SHARED", ":", "LOCK "+k+" WAIT 1", "-DEADLOCK ", "UNLOCK "+k+" SHARED", ":1")
		more.Script("FORCEUNLOCK "+k, ":1")
		red.ExpectFrame("lock-lost")
		fence := red.Do("LOCK", k)
		red.Script("LOCK "+k, fence, "EXTENDLOCK "+k+" PX 60000", ":1", "UNLOCK "+k, ":0", "LOCKINFO "+k, "%10", "LOCKLIST", "*1")
		// All ways to wait for it and to get it.
		for _, verb := range []string{"LOCK", "FAIRLOCK"} {
			more.Send(verb, k, "WAIT", "8000")
			proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
			red.Script("UNLOCK "+k, ":1")
			more.Gets(":")
			more.Script("UNLOCK "+k, ":1")
			red.Script("FAIRLOCK "+k, ":")
		}
		proxytest.AwaitRenewal(t, redis, k, 1)
		for _, cmd := range []string{
			"LOCK NAME", "FAIRLOCK NAME", "TRYLOCK NAME", "UNLOCK NAME", "UNLOCK NAME OWNER x", "EXTENDLOCK NAME PX 1", "LOCKINFO NAME", "FORCEUNLOCK NAME",
			"LOCK NAME SHARED", "UNLOCK NAME SHARED", "FORCEUNLOCK NAME OWNER x", "SET {NAME}:x:rwlock_timeout:1 1", "PUBLISH redisson_rwlock:{NAME} 1",
			"RPUSH redisson_lock_queue:{NAME} ghost", "SET redisson_lock_queue:{NAME} x", "DEL redisson_lock_queue:{NAME}",
			"ZADD redisson_lock_timeout:{NAME} 1 ghost", "DEL redisson_lock_timeout:{NAME}", "PUBLISH redisson_lock__channel:{NAME} 0",
			"SUBSCRIBE redisson_lock__channel:{NAME}", "SUBSCRIBE lockproxy:lost:{NAME}", "DEL NAME", "HSET NAME x 1",
		} {
			if strings.Contains(k, "{") {
				cmd = strings.ReplaceAll(cmd, "{NAME}", "NAME")
			}
			blue.Script(strings.ReplaceAll(cmd, "NAME", k), "-NOPERM")
		}
		blue.Script("LOCKLIST", "*0")
		red.Script("UNLOCK "+k, ":1", "PING", "+PONG")
	}
	redis.Do(t, "DEL", "blue:j")
	blue.Script("LOCK blue:j", ":")
	redis.Do(t, "DEL", "blue:j")
	blue.ExpectFrame("lock-lost")
}
