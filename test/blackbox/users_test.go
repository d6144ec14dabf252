package blackbox

import (
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tenants is a Redis on which alice and bob may do anything.
func tenants(t *testing.T, f func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy)) {
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "alice", "on", ">a", "~*", "&*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "bob", "on", ">b", "~*", "&*", "+@all")
	f(t, redis, proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Locks.Lease = 4 * time.Second // of which a busy machine may take half
	}))
}

// A connection that becomes another client ends its locks as one that hangs up.
func TestAnotherUserHasNoLocks(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		for name, change := range map[string][]string{
			"AUTH": {"AUTH bob b", "+OK"}, "HELLO": {"HELLO 3 AUTH bob b", "%"}, "RESET": {"RESET", "+RESET"},
		} {
			c, other := srv.Dial(t), srv.Dial(t)
			c.Script("HELLO 3 AUTH alice a", "%", "LOCK k:"+name, ":", "LOCK g:"+name+" GRACE 0", ":", "LOCK o:"+name+" OWNER me", ":")
			c.Script(change...)
			for _, lock := range []string{"k:", "g:", "o:"} {
				c.Script("UNLOCK "+lock+name, "-NOTHELD")
			}
			proxytest.WaitFor(t, "the lock with GRACE 0 to be free", func() bool { return redis.Do(t, "EXISTS", "g:"+name) == int64(0) })
			other.Script("AUTH bob b", "+OK", "TRYLOCK k:"+name, "$-1", "LOCK k:"+name, ":", "UNLOCK k:"+name, ":1") // behind the lease
			c.Script("LOCK k:"+name, ":", "LOCK k:"+name, ":", "UNLOCK k:"+name, ":0", "UNLOCK k:"+name, ":1")
		}
		if lost := srv.Stats().Lost["gone"]; lost != 0 {
			t.Errorf("%d leases lost", lost)
		}
	})
}

func TestTheSameUserKeepsItsLocks(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		redis.Do(t, "ACL", "SETUSER", "alice", ">another")
		c := srv.Dial(t)
		c.Script("AUTH alice a", "+OK")
		fence := c.Do("LOCK", "k")
		for _, again := range [][]string{{"AUTH alice a", "+OK"}, {"HELLO 3 AUTH alice a", "%"}, {"AUTH alice another", "+OK"}, {"AUTH alice wrong", "-WRONGPASS"}, {"AUTH bob wrong", "-WRONGPASS"}} {
			c.Script(again...)
			c.Script("LOCK k", fence, "UNLOCK k", ":0")
		}
		proxytest.AwaitRenewal(t, redis, "k", 2)
		c.Script("UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}

func TestHoldsAreOfTheDatabaseTheyWereTakenIn(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		c.Script("AUTH alice a", "+OK")
		fence := c.Do("LOCK", "k")
		c.Script("SELECT 1", "+OK", "UNLOCK k", "-NOTHELD")
		if other := c.Do("LOCK", "k"); other == fence {
			t.Error("the same grant in another database")
		}
		c.Script("UNLOCK k", ":1", "SELECT 0", "+OK", "LOCK k", fence, "UNLOCK k", ":0", "UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}

func TestRightThatIsMissingForOneLockDoesNotCostTheOthersTheirLease(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		c.Script("AUTH alice a", "+OK")
		for _, k := range []string{"a:1", "b:1", "a:2", "a:3"} {
			c.Script("LOCK "+k, ":")
		}
		redis.Do(t, "ACL", "SETUSER", "alice", "resetkeys", "~a:*", "~lockproxy:*", "~redisson_*")
		proxytest.WaitFor(t, "the lease of b:1 to end", func() bool {
			return redis.Client(t).Exists(t.Context(), "b:1").Val() == 0
		})
		for _, k := range []string{"a:1", "a:2", "a:3"} {
			proxytest.AwaitRenewal(t, redis, k, 1)
			c.Script("UNLOCK "+k, ":1")
		}
	})
}
