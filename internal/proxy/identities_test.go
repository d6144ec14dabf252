package proxy

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A user without a password may log in with any: that makes neither connections nor lock engines.
func TestAnyPasswordIsOneIdentity(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "open", "on", "nopass", "~*", "&*", "+@all")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		c := dialClient(t, address(srv))
		for i := range 150 {
			c.raw(inline(fmt.Sprintf("AUTH default x%d", i), "SET k v", "LOCK lock GRACE 0", "UNLOCK lock", fmt.Sprintf("HELLO 3 AUTH open x%d", i), "LOCK lock GRACE 0", "UNLOCK lock", "HELLO 2"))
			for _, want := range []string{"+OK", "+OK", ":", ":1", "%7", ":", ":1", "*14"} {
				c.expectReply(want)
			}
		}
		identities := map[string]bool{} // a machine that stands still has spare lanes for each
		for _, lane := range srv.shared.Upstream.Lanes() {
			identities[lane.Identity.String()] = true
		}
		if len(identities) > 3 {
			t.Errorf("%d identities: %v", len(identities), srv.shared.Upstream.Lanes())
		}
		if n := srv.shared.Locks.Len(); n > 3 {
			t.Errorf("%d lock engines", n)
		}
	})
}

// What stood for all passwords of a user gives way to one that is good.
func TestPasswordThatIsGoodNow(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		redis.Do(t, "ACL", "SETUSER", "u", "reset", "on", "nopass", "~*", "&*", "+@all")
		early := dialClient(t, address(srv))
		early.raw(inline("AUTH u junk", "PING"))
		early.expectReply("+OK")
		early.expectReply("+PONG")
		redis.Do(t, "ACL", "SETUSER", "u", "resetpass", ">good")
		c := dialClient(t, address(srv))
		c.raw(inline("AUTH u junk", "AUTH u good", "SELECT 5", "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
		for _, want := range []string{"-WRONGPASS", "+OK", "+OK", "+OK", "+OK", "*0", ":", ":1"} {
			c.expectReply(want)
		}
		early.send("ACL", "WHOAMI") // as directly
		early.expectReply("$1\r\nu\r\n")
	})
}

// One client that walks through all databases leaves few connections behind.
func TestWalkThroughDatabases(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "1000")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		c := dialClient(t, address(srv))
		for db := range 200 {
			c.raw(inline("SELECT "+strconv.Itoa(db), "SET k v", "MULTI", "EXEC", "LOCK lock GRACE 0", "UNLOCK lock"))
			for _, want := range []string{"+OK", "+OK", "+OK", "*0", ":", ":1"} {
				c.expectReply(want)
			}
		}
		if n := len(srv.shared.Upstream.Lanes()); n > 8 {
			t.Errorf("%d lanes", n)
		}
		if s := srv.Stats(); s.PinsOpen > 16 {
			t.Errorf("%d pins", s.PinsOpen)
		}
		redistest.Eventually(t, patience, "the connections to be few", func() bool {
			return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "\n") < 60
		})
	}, func(o *Options) { o.Upstream.MaxLanes, o.Upstream.Pins.Max, o.MaxEngines = 64, 20, 8 })
}

// Over the limit of lanes a client is told so, another address still gets one, and nothing hangs.
func TestLanesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		var residents []*peer
		for db := 1; db <= 6; db++ {
			c := dialClient(t, address(srv))
			c.raw(inline("SELECT "+strconv.Itoa(db), "SET k v"))
			c.expectReply("+OK")
			c.expectReply("+OK")
			residents = append(residents, c)
		}
		const full = "-OVERLOADED no connection to share is free for this identity (max-lanes)"
		late := dialClient(t, address(srv))
		late.raw(inline("SELECT 50", "SET k v", "SELECT 3", "GET k", "MULTI", "SELECT 50", "EXEC"))
		for _, want := range []string{full, full, "+OK", "$1", "+OK", "+QUEUED", "*1"} { // SET is not for the database of before
			late.expectReply(want)
		}
		late.raw(inline("GET k", "SELECT 0", "PING")) // EXEC's own connection serves nothing more
		for _, want := range []string{full, "+OK", "+PONG"} {
			late.expectReply(want)
		}
		other := dialFrom(t, "127.0.0.2", address(srv))
		other.raw(inline("SELECT 50", "SET k v"))
		other.expectReply("+OK")
		other.expectReply("+OK")
		_ = residents[0].nc.Close() // its lane is not used any more
		redistest.Eventually(t, patience, "the lane to be given up", func() bool {
			late.send("SELECT", "51")
			got, err := late.frame()
			return err == nil && got == "+OK\r\n"
		})
		late.send("SET", "k", "v")
		late.expectReply("+OK")
	}, func(o *Options) { o.Upstream.MaxLanes = 8 })
}

// Lock engines are bounded; one that somebody needs stays.
func TestLockEnginesAreBounded(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t, "--databases", "100")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		holder := dialClient(t, address(srv))
		for db := 1; db <= 3; db++ {
			holder.raw(inline("SELECT "+strconv.Itoa(db), "LOCK lock GRACE 0"))
			holder.expectReply("+OK")
			holder.expectReply(":")
		}
		late := dialClient(t, address(srv))
		late.raw(inline("SELECT 4", "LOCK lock", "SELECT 3", "TRYLOCK lock", "SELECT 4"))
		for _, want := range []string{"+OK", "-OVERLOADED no lock engine is free for this identity (max-lock-engines)", "+OK", "$-1", "+OK"} {
			late.expectReply(want)
		}
		for db := 1; db <= 3; db++ {
			holder.raw(inline("SELECT "+strconv.Itoa(db), "UNLOCK lock"))
			holder.expectReply("+OK")
			holder.expectReply(":1")
		}
		_ = holder.nc.Close()
		redistest.Eventually(t, patience, "an engine to make room", func() bool {
			late.send("LOCK", "lock", "PX", "1000")
			got, err := late.frame()
			return err == nil && strings.HasPrefix(got, ":")
		})
	}, func(o *Options) { o.MaxEngines, o.lockIdle = 4, time.Hour })
}

// The database that was selected before AUTH stays selected, also for a user who may not SELECT.
func TestDatabaseSelectedBeforeAuth(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.redis.Do(t, "ACL", "SETUSER", "stay", "on", ">pw", "~*", "&*", "+@all", "-select")
	b.redis.Do(t, "ACL", "SETUSER", "", "on", "nopass", "~*", "&*", "+@all", "-set")
	for _, login := range []string{"AUTH stay pw", "HELLO 3 AUTH stay pw", "MULTI\r\nAUTH stay pw\r\nEXEC", "WATCH w\r\nAUTH stay pw\r\nUNWATCH", "*3\r\n$4\r\nAUTH\r\n$0\r\n\r\n$1\r\nx"} {
		t.Run(login, func(t *testing.T) {
			b.compare(t, func(s *side) {
				s.hideHelloID()
				c := s.client("c")
				c.raw(inline("SELECT 5", "SET k five", login, "GET k", "SET k 5", "MULTI", "GET k", "EXEC", "BLPOP l 0.001", "ACL WHOAMI", "SELECT 5", "GET k", "AUTH default", "HELLO 3", "GET k", "RESET", "GET k", "SELECT 5", "GET k", "ECHO the-end"))
				c.until("the-end")
			})
		})
	}
}

// EXEC runs several identity changes at once. Those behind an AUTH must hold, although the session has questions to Redis about the AUTH.
func TestIdentityChangesOfOneTransaction(t *testing.T) {
	t.Parallel()
	b := newBench(t)
	b.redis.Do(t, "ACL", "SETUSER", "open", "reset", "on", "nopass", "~*", "&*", "+@all")
	b.redis.Do(t, "ACL", "SETUSER", "stay", "reset", "on", "nopass", "~*", "&*", "+@all", "-select")
	after := inline("HSET h f v", "HGETALL h", "UNSUBSCRIBE", "CLIENT GETNAME", "ACL WHOAMI", "DBSIZE", "HELLO", "ECHO the-end")
	transactions := [][]string{
		{"AUTH open x", "HELLO 3"},
		{"AUTH open x", "HELLO 2"},
		{"AUTH open x", "SELECT 0"},
		{"AUTH open x", "SELECT 2", "HELLO 3 SETNAME n"},
		{"AUTH open x", "AUTH default y"},
		{"HELLO 3 AUTH open x BAD", "AUTH default y", "HELLO 2"},
		{"AUTH open x", "HELLO 3 AUTH stay y", "HELLO 2"},
		{"AUTH open x", "HELLO 2 SETNAME n BAD", "SELECT 0"},
		{"AUTH open x", "SUBSCRIBE c", "HELLO 3"},
		{"HELLO 3", "AUTH open x", "SUBSCRIBE c", "HELLO 2", "UNSUBSCRIBE c", "SELECT 0"},
		{"AUTH open x", "RESET"},
	}
	for _, before := range []string{"PING", "SELECT 1", "HELLO 3\r\nSELECT 1", "AUTH open other\r\nHELLO 3\r\nSELECT 1"} {
		t.Run(before, func(t *testing.T) {
			b.compare(t, func(s *side) {
				s.hideHelloID()
				b.redis.Do(t, "FLUSHALL")
				for _, changes := range transactions {
					name := strings.Join(changes, ", ")
					first, second := s.client(name), s.client("behind "+name)
					first.raw(inline(before, "MULTI") + inline(changes...) + inline("EXEC") + after)
					first.until("the-end")
					second.raw(inline(before) + after) // it may get the connection of the first
					second.until("the-end")
				}
			})
		})
	}
}

// The user with the empty name is not the default user.
func TestUserWithoutAName(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "", "on", "nopass", "~*", "&*", "+@all", "-set")
	onEngines(t, redis, func(t *testing.T, srv *Server) {
		for _, password := range []string{"", "x"} {
			c := dialClient(t, address(srv))
			c.send("AUTH", "", password)
			c.expectReply("+OK")
			c.raw(inline("SET k v", "ACL WHOAMI", "MULTI", "ACL WHOAMI", "EXEC", "SET k v", "LOCK l PX 1000"))
			for _, want := range []string{"-NOPERM", "$0\r\n", "+OK", "+QUEUED", "*1\r\n$0\r\n", "-NOPERM", ""} {
				c.expectReply(want)
			}
		}
	})
}
