package proxy

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestEveryLossIsTold loses more locks than a session's share of what is remembered without being asked for.
func TestEveryLossIsTold(t *testing.T) {
	t.Parallel()
	const n = 1500
	for _, engine := range engineNames() {
		for _, how := range []string{"FLUSHALL", "FORCEUNLOCK", "deadline"} {
			t.Run(engine+"/"+how, func(t *testing.T) {
				t.Parallel()
				redis := redistest.Start(t)
				srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Locks.Lease = engine, 6*time.Second })
				c, other := dialClient(t, address(srv)), dialClient(t, address(srv))
				var lock, unlock strings.Builder
				for i := range n {
					key := strconv.Itoa(i)
					if how == "deadline" {
						key += " PX 2000"
					}
					lock.WriteString("LOCK " + key + "\r\n")
					unlock.WriteString("UNLOCK " + strconv.Itoa(i) + "\r\n")
				}
				c.raw(lock.String())
				for range n {
					if got, err := c.frame(); err != nil || got[0] != ':' {
						t.Fatalf("%q, %v", got, err)
					}
				}
				switch how {
				case "FLUSHALL":
					redis.Do(t, "FLUSHALL")
				case "FORCEUNLOCK":
					other.raw(strings.ReplaceAll(unlock.String(), "UNLOCK", "FORCEUNLOCK"))
					for range n {
						if got, err := other.frame(); err != nil || got != ":1\r\n" {
							t.Fatalf("%q, %v", got, err)
						}
					}
				}
				redistest.Eventually(t, patience, "the losses", func() bool { return srv.Stats().Held == 0 })
				for _, want := range []string{"-LOSTLEASE ", "-NOTHELD "} {
					c.raw(unlock.String())
					for i := range n {
						if got, err := c.lateFrame(); err != nil || !strings.HasPrefix(got, want) {
							t.Fatalf("%d: %q, %v, want %s", i, got, err, want)
						}
					}
				}
			})
		}
	}
}

// TestOverwrittenHoldIsToldByAPush needs no command of the client.
func TestOverwrittenHoldIsToldByAPush(t *testing.T) {
	t.Parallel()
	perEngine(t, func(t *testing.T, redis *redistest.Server, engine string) {
		srv := startProxy(t, redis, func(o *Options) { o.Engine, o.Locks.Lease = engine, 2*time.Second })
		c := dialClient(t, address(srv))
		c.script("HELLO 3", "%", "LOCK k", ":")
		redis.Do(t, "SET", "k", "x")
		if push, err := c.frame(); err != nil || !strings.Contains(push, "lock-lost") {
			t.Fatalf("%q, %v", push, err)
		}
		c.script("LOCK k", "-LOSTLEASE", "LOCK k", "-WRONGTYPE", "UNLOCK k", "-WRONGTYPE")
	})
}

// TestALossIsToldInFrontOfLaterReleases has a client send more commands behind a loss in one go. It gets the replies that it would get one by one.
func TestALossIsToldInFrontOfLaterReleases(t *testing.T) {
	t.Parallel()
	eachEngine(t, func(t *testing.T, _ *redistest.Server, srv *Server) {
		watcher, other := dialClient(t, address(srv)), dialClient(t, address(srv))
		watcher.script("SUBSCRIBE lockproxy:lost:{k}", "*3")
		for _, c := range []struct {
			commands []string
			want     []string
		}{
			{[]string{"LOCK k", "DEL k", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "DEL k", "UNLOCK k", "PING", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "+PONG", "-NOTHELD", "-NOTHELD"}},
			{[]string{"LOCK k OWNER me", "DEL k", "UNLOCK k OWNER me", "UNLOCK k OWNER me"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "LOCK k", "DEL k", "UNLOCK k", "UNLOCK k"}, []string{":", ":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "DEL k", "EXTENDLOCK k PX 9000", "UNLOCK k"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "DEL k", "UNLOCK k", "EXTENDLOCK k PX 9000"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "DEL k", "EXTENDLOCK k PX 9000", "EXTENDLOCK k PX 9000"}, []string{":", ":1", "-LOSTLEASE", "-NOTHELD"}},
			{[]string{"LOCK k", "SET k x", "UNLOCK k", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
			{[]string{"LOCK k", "SET k x", "EXTENDLOCK k PX 9000", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
			{[]string{"LOCK k", "SET k x", "LOCK k WAIT 0", "UNLOCK k", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
			{[]string{"LOCK k", "SET k x", "FAIRLOCK k WAIT 0", "FAIRLOCK k WAIT 0", "DEL k"}, []string{":", "+OK", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
			{[]string{"LOCK k OWNER me", "DEL k", "LPUSH k x", "TRYLOCK k OWNER me", "UNLOCK k OWNER me", "DEL k"}, []string{":", ":1", ":1", "-LOSTLEASE", "-WRONGTYPE", ":1"}},
			{[]string{"LOCK k", "DEL k", "HSET k x 1", "LOCK k WAIT 0", "UNLOCK k", "UNLOCK k", "DEL k"}, []string{":", ":1", ":1", "$-1", "-LOSTLEASE", "-NOTHELD", ":1"}}, // a hash may be another's lock
			{[]string{"LOCK k", "DEL k", "HSET k x 1", "EXTENDLOCK k PX 9000", "EXTENDLOCK k PX 9000", "DEL k"}, []string{":", ":1", ":1", "-LOSTLEASE", "-NOTHELD", ":1"}},
			{[]string{"LOCK k", "DEL k", "UNLOCK k FENCE 1", "UNLOCK k"}, []string{":", ":1", "-NOTHELD", "-LOSTLEASE"}},
			{[]string{"LOCK k", "UNLOCK k", "UNLOCK k", "UNLOCK k"}, []string{":", ":1", "-NOTHELD", "-NOTHELD"}},
		} {
			client := dialClient(t, address(srv))
			client.raw(strings.Join(c.commands, "\r\n") + "\r\n")
			for i, want := range c.want {
				if got, err := client.frame(); err != nil || !strings.HasPrefix(got, want) {
					t.Fatalf("%q: reply %d is %q, %v, want %s", c.commands, i, got, err, want)
				}
			}
			if slices.Contains(c.want, "-LOSTLEASE") {
				if got, err := watcher.frame(); err != nil || !strings.Contains(got, "lockproxy:lost:{k}") {
					t.Fatalf("%q: %q, %v", c.commands, got, err)
				}
			}
		}
		holder := dialClient(t, address(srv))
		holder.script("HELLO 3", "%", "LOCK k OWNER me", ":", "DEL k", ":1")
		other.raw("UNLOCK k OWNER me\r\nUNLOCK k OWNER me\r\n") // of a session that has not held it
		for range 2 {
			if got, err := other.frame(); err != nil || !strings.HasPrefix(got, "-NOTHELD") {
				t.Fatalf("%q, %v", got, err)
			}
		}
		if push, err := holder.frame(); err != nil || !strings.Contains(push, "lock-lost") {
			t.Fatalf("%q, %v", push, err)
		}
	})
}

// TestAForcedEndIsToldToAHolderOfAnotherUser: an operator who ends a lock is rarely the user who holds it.
func TestAForcedEndIsToldToAHolderOfAnotherUser(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all")
	srv := startProxy(t, redis, func(o *Options) { o.Locks.Lease = time.Hour })
	holder, sameName, other := dialClient(t, address(srv)), dialClient(t, address(srv)), dialClient(t, address(srv))
	for _, c := range []*peer{holder, sameName} {
		c.send("HELLO", "3", "AUTH", "tenant", "pw")
		c.expect(1)
	}
	sameName.send("SELECT", "1") // a lock of another database
	sameName.expectReply("+OK")
	for _, c := range []*peer{holder, sameName} {
		c.send("LOCK", "a", "OWNER", "me")
		c.expectReply(":")
	}
	other.send("FORCEUNLOCK", "a")
	other.expectReply(":1")
	got, err := holder.frame()
	if err != nil || !strings.HasPrefix(got, ">4\r\n$9\r\nlock-lost\r\n$1\r\na\r\n") || !strings.HasSuffix(got, "\r\nforced\r\n") {
		t.Errorf("%q, %v", got, err)
	}
	holder.send("UNLOCK", "a", "OWNER", "me")
	holder.expectReply("-LOSTLEASE")
	sameName.send("UNLOCK", "a", "OWNER", "me")
	sameName.expectReply(":1")
}
