package proxy

import (
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// tenants is a Redis on which alice and bob may do anything, and carol only what is about keys c:*. Each engine has a proxy.
func tenants(t *testing.T, f func(t *testing.T, redis *redistest.Server, srv *Server)) {
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		redis.Do(t, "ACL", "SETUSER", "alice", "on", ">a", "~*", "&*", "+@all")
		redis.Do(t, "ACL", "SETUSER", "bob", "on", ">b", "~*", "&*", "+@all")
		redis.Do(t, "ACL", "SETUSER", "carol", "on", ">c", "~c:*", "~lockproxy:*", "~redisson_*", "&*", "+@all")
		f(t, redis, startProxy(t, redis, func(o *Options) {
			o.Engine = engine
			o.Locks.Lease = 4 * time.Second // of which a busy machine may take half
		}))
	})
}

// script sends commands, each with the start of its reply; a push that comes in between makes a difference.
func (c *peer) script(pairs ...string) {
	c.t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if got := c.do(strings.Fields(pairs[i])...); !strings.HasPrefix(got, pairs[i+1]) {
			c.t.Errorf("%s: %q, want %q…", pairs[i], got, pairs[i+1])
		}
	}
}

// awaitRenewal returns when the lease of a lock has been set anew so many times.
func awaitRenewal(t *testing.T, redis *redistest.Server, key string, times int) {
	t.Helper()
	client := redis.Client(t)
	last := client.PTTL(t.Context(), key).Val()
	redistest.Eventually(t, patience, "renewals of "+key, func() bool {
		ttl := client.PTTL(t.Context(), key).Val()
		if ttl > last {
			times--
		}
		last = ttl
		if ttl < 0 {
			t.Fatal("the lock is gone")
		}
		return times <= 0
	})
}

func TestHoldsAreTheSessionsWhateverItsIdentity(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		for name, change := range map[string]string{"AUTH": "AUTH bob b", "HELLO": "HELLO 3 AUTH bob b"} {
			c := dialClient(t, address(srv))
			k := "k:" + name
			c.script("HELLO 3 AUTH alice a", "%")
			fence := c.do("LOCK", k)
			c.do(strings.Fields(change)...)
			c.script(
				"LOCK "+k, fence, // a re-entry
				"EXTENDLOCK "+k+" PX 60000", ":1",
				"UNLOCK "+k, ":0",
				"UNLOCK "+k, ":1",
				"UNLOCK "+k, "-NOTHELD",
			)
			again := c.do("LOCK", k)
			if again == fence || again[0] != ':' {
				t.Fatalf("%s after %s", again, fence)
			}
			awaitRenewal(t, redis, k, 2)
			c.script("PING", "+PONG", "AUTH alice a", "+OK", "UNLOCK "+k, ":1", "PING", "+PONG")
		}
		if lost := srv.Stats().Lost["gone"]; lost != 0 {
			t.Errorf("%d leases lost", lost)
		}
	})
}

func TestHoldsAreOfTheDatabaseTheyWereTakenIn(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		c.script("AUTH alice a", "+OK")
		fence := c.do("LOCK", "k")
		c.script("SELECT 1", "+OK", "UNLOCK k", "-NOTHELD")
		if other := c.do("LOCK", "k"); other == fence {
			t.Error("the same grant in another database")
		}
		c.script("UNLOCK k", ":1", "AUTH bob b", "+OK", "UNLOCK k", "-NOTHELD", "SELECT 0", "+OK", "LOCK k", fence, "UNLOCK k", ":0",
			"RESET", "+RESET", "LOCK k", fence, "UNLOCK k", ":0")
		awaitRenewal(t, redis, "k", 2)
		c.script("UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}

func TestCommandsAreJudgedByPresentRightsAndRenewalsByThoseThatSuffice(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c, other := dialClient(t, address(srv)), dialClient(t, address(srv))
		other.script("AUTH bob b", "+OK")
		c.script("AUTH alice a", "+OK")
		fence := c.do("LOCK", "k")
		c.script("AUTH carol c", "+OK", "LOCK k", "-NOPERM", "UNLOCK k", "-NOPERM", "LOCK c:1", ":", "UNLOCK c:1", ":1")
		awaitRenewal(t, redis, "k", 2) // as alice
		c.script("AUTH bob b", "+OK", "LOCK k", fence)
		redis.Do(t, "ACL", "DELUSER", "alice")
		awaitRenewal(t, redis, "k", 3) // as bob
		other.script("TRYLOCK k", "$-1")
		c.script("UNLOCK k", ":0", "UNLOCK k", ":1")
	})
}

func TestRightThatIsMissingForOneLockDoesNotCostTheOthersTheirLease(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		c.script("AUTH alice a", "+OK")
		for _, k := range []string{"a:1", "b:1", "a:2", "a:3"} {
			c.script("LOCK "+k, ":")
		}
		redis.Do(t, "ACL", "SETUSER", "alice", "resetkeys", "~a:*", "~lockproxy:*", "~redisson_*")
		redistest.Eventually(t, patience, "the lease of b:1 to end", func() bool {
			return redis.Client(t).Exists(t.Context(), "b:1").Val() == 0
		})
		for _, k := range []string{"a:1", "a:2", "a:3"} {
			awaitRenewal(t, redis, k, 1)
			c.script("UNLOCK "+k, ":1")
		}
	})
}

func TestLossFromBeforeAnAuthIsTold(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c := dialClient(t, address(srv))
		c.script("HELLO 3 AUTH alice a", "%", "LOCK k", ":", "LOCK j", ":", "AUTH bob b", "+OK")
		redis.Do(t, "DEL", "k")
		if push, err := c.frame(); err != nil || !strings.Contains(push, "lock-lost") {
			t.Fatalf("%q, %v", push, err)
		}
		c.script("UNLOCK k", "-LOSTLEASE", "UNLOCK k", "-NOTHELD")
		redis.Do(t, "DEL", "j")
		for _, want := range []string{"-LOSTLEASE", "-NOTHELD"} {
			c.send("UNLOCK", "j")
			got, err := c.frame()
			if strings.HasPrefix(got, ">") { // a renewal has found the loss first
				got, err = c.frame()
			}
			if err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%q, %v, want %s", got, err, want)
			}
		}
	})
}

func TestWaitBehindALossIsTheHomesAffair(t *testing.T) {
	t.Parallel()
	tenants(t, func(t *testing.T, redis *redistest.Server, srv *Server) {
		c, other := dialClient(t, address(srv)), dialClient(t, address(srv))
		c.script("AUTH alice a", "+OK")
		fence := c.do("LOCK", "k")
		c.script("AUTH bob b", "+OK")
		other.script("AUTH bob b", "+OK", "FORCEUNLOCK k", ":1", "LOCK k", ":")
		c.send("LOCK", "k", "WAIT", "8000")
		redistest.Eventually(t, patience, "the waiter", func() bool { return srv.Stats().Waiting == 1 })
		redis.Do(t, "ACL", "DELUSER", "alice")
		other.script("UNLOCK k", ":1")
		if got, err := c.frame(); err != nil || got == fence || got[0] != ':' {
			t.Fatalf("%q, %v", got, err)
		}
		c.script("UNLOCK k", ":1", "UNLOCK k", "-NOTHELD")
	})
}
