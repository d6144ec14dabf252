package clients

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tenants is a Redis on which alice and bob may do anything, and carol only what is about keys c:*.
func tenants(t *testing.T, f func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy)) {
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "alice", "on", ">a", "~*", "&*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "bob", "on", ">b", "~*", "&*", "+@all")
	redis.Do(t, "ACL", "SETUSER", "carol", "on", ">c", "~c:*", "~lockproxy:*", "~redisson_*", "&*", "+@all")
	f(t, redis, proxytest.Start(t, redis, func(o *proxy.Options) {
		o.Locks.Lease = 4 * time.Second // of which a busy machine may take half
	}))
}

func TestHoldsAreTheSessionsWhateverItsIdentity(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		for name, change := range map[string]string{"AUTH": "AUTH bob b", "HELLO": "HELLO 3 AUTH bob b"} {
			c := srv.Dial(t)
			k := "k:" + name
			c.Script("HELLO 3 AUTH alice a", "%")
			fence := c.Do("LOCK", k)
			c.Do(strings.Fields(change)...)
			c.Script(
				"LOCK "+k, fence, // a re-entry
				"EXTENDLOCK "+k+" PX 60000", ":1",
				"UNLOCK "+k, ":0",
				"UNLOCK "+k, ":1",
				"UNLOCK "+k, "-NOTHELD",
			)
			again := c.Do("LOCK", k)
			if again == fence || again[0] != ':' {
				t.Fatalf("%s after %s", again, fence)
			}
			proxytest.AwaitRenewal(t, redis, k, 2)
			c.Script("PING", "+PONG", "AUTH alice a", "+OK", "UNLOCK "+k, ":1", "PING", "+PONG")
		}
		if lost := srv.Stats().Lost["gone"]; lost != 0 {
			t.Errorf("%d leases lost", lost)
		}
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
		c.Script("UNLOCK k", ":1", "AUTH bob b", "+OK", "UNLOCK k", "-NOTHELD", "SELECT 0", "+OK", "LOCK k", fence, "UNLOCK k", ":0",
			"RESET", "+RESET", "LOCK k", fence, "UNLOCK k", ":0")
		proxytest.AwaitRenewal(t, redis, "k", 2)
		c.Script("UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}

func TestCommandsAreJudgedByPresentRightsAndRenewalsByThoseThatSuffice(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		c, other := srv.Dial(t), srv.Dial(t)
		other.Script("AUTH bob b", "+OK")
		c.Script("AUTH alice a", "+OK")
		fence := c.Do("LOCK", "k")
		c.Script("AUTH carol c", "+OK", "LOCK k", "-NOPERM", "UNLOCK k", "-NOPERM", "LOCK c:1", ":", "UNLOCK c:1", ":1")
		proxytest.AwaitRenewal(t, redis, "k", 2) // as alice
		c.Script("AUTH bob b", "+OK", "LOCK k", fence)
		redis.Do(t, "ACL", "DELUSER", "alice")
		proxytest.AwaitRenewal(t, redis, "k", 3) // as bob
		other.Script("TRYLOCK k", "$-1")
		c.Script("UNLOCK k", ":0", "UNLOCK k", ":1")
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

func TestLossFromBeforeAnAuthIsTold(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		c := srv.Dial(t)
		c.Script("HELLO 3 AUTH alice a", "%", "LOCK k", ":", "LOCK j", ":", "AUTH bob b", "+OK")
		redis.Do(t, "DEL", "k")
		c.ExpectFrame("lock-lost")
		c.Script("UNLOCK k", "-LOSTLEASE", "UNLOCK k", "-NOTHELD")
		redis.Do(t, "DEL", "j")
		for _, want := range []string{"-LOSTLEASE", "-NOTHELD"} {
			c.Send("UNLOCK", "j")
			got, err := c.Frame()
			if strings.HasPrefix(got, ">") { // a renewal has found the loss first
				got, err = c.Frame()
			}
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%q, %v, want %s", got, err, want)
			}
		}
	})
}

func TestWaitBehindALossIsTheHomesAffair(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *proxytest.Proxy) {
		c, other := srv.Dial(t), srv.Dial(t)
		c.Script("AUTH alice a", "+OK")
		fence := c.Do("LOCK", "k")
		c.Script("AUTH bob b", "+OK")
		other.Script("AUTH bob b", "+OK", "FORCEUNLOCK k", ":1", "LOCK k", ":")
		c.Send("LOCK", "k", "WAIT", "8000")
		proxytest.WaitFor(t, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
		redis.Do(t, "ACL", "DELUSER", "alice")
		other.Script("UNLOCK k", ":1")
		if got, err := c.Frame(); err != nil || got == fence || got[0] != ':' {
			t.Fatalf("%q, %v", got, err)
		}
		c.Script("UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}
