package proxy

import (
	"strings"
	"testing"
	"time"

	"lockproxy/internal/redistest"
)

// A lock engine has connections of its own to Redis, for as long as its identity has something to do with locks.
func TestUnusedLockEnginesAreDropped(t *testing.T) {
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all")
	srv := startProxy(t, redis, func(o *Options) { o.lockIdle = 50 * time.Millisecond })
	engines := func() (users []string) {
		srv.env.locks.mu.Lock()
		defer srv.env.locks.mu.Unlock()
		for id := range srv.env.locks.engines {
			users = append(users, id.user)
		}
		return users
	}
	connections := func() int { return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "user=tenant") }
	login := func() *peer {
		c := dialClient(t, address(srv))
		c.send("AUTH", "tenant", "pw")
		c.expectReply("+OK")
		c.send("GET", "a")
		c.expectReply("$")
		return c
	}
	for range 2 { // a dropped engine is made anew
		holder, waiter := login(), login()
		before := connections()
		holder.send("LOCK", "a", "GRACE", "0")
		holder.expectReply(":")
		waiter.send("LOCK", "a")
		redistest.Eventually(t, patience, "the waiter's subscription", func() bool {
			return strings.Contains(redis.Do(t, "INFO", "stats").(string), "pubsub_channels:1\r")
		})
		if got := engines(); len(got) != 1 || got[0] != "tenant" {
			t.Fatalf("engines %q", got)
		}
		_ = holder.nc.Close() // the lock goes on to the waiter
		waiter.expectReply(":")
		if len(engines()) != 1 {
			t.Fatal("the engine of a holder was dropped")
		}
		_ = waiter.nc.Close()
		redistest.Eventually(t, patience, "the engine to go", func() bool { return len(engines()) == 0 })
		redistest.Eventually(t, patience, "its connections to close", func() bool { return connections() <= before })
		redis.Do(t, "DEL", "a")
	}
}

// expectReply reads a reply and fails unless it begins so.
func (c *peer) expectReply(start string) {
	c.t.Helper()
	got, err := c.frame()
	if err != nil || !strings.HasPrefix(got, start) {
		c.t.Fatalf("reply %q %v, want %q", got, err, start)
	}
}
