package proxy

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy/session"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A lock engine has connections of its own to Redis, for as long as its identity has something to do with locks.
func TestUnusedLockEnginesAreDropped(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all")
	srv := startProxy(t, redis, func(o *Options) { o.lockIdle = 50 * time.Millisecond })
	connections := func() int { // that speak RESP3, as those of the engine do: others, in the clients' RESP2, are opened ahead of need
		return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "user=tenant redir=-1 resp=3")
	}
	login := func() *peer {
		c := dialClient(t, address(srv))
		c.send("AUTH", "tenant", "pw")
		c.expectReply("+OK")
		c.send("GET", "a")
		c.expectReply("$")
		return c
	}
	slowFrom(srv, 100)
	for i := range 2 { // a dropped engine is made anew, and its log of slow holds is still there
		holder, waiter := login(), login()
		if got := holder.quiet("LOCKSLOW", "LEN"); (got == ":0\r\n") != (i == 0) {
			t.Errorf("round %d: %q slow holds", i, got)
		}
		holder.send("LOCK", "a", "GRACE", "0")
		holder.expectReply(":")
		waiter.send("LOCK", "a")
		redistest.Eventually(t, patience, "the waiter's subscription", func() bool {
			return fmt.Sprint(redis.Do(t, "PUBSUB", "NUMSUB", "redisson_lock__channel:{a}")) == "[redisson_lock__channel:{a} 1]"
		})
		if n := srv.shared.Locks.Len(); n != 1 {
			t.Fatalf("%d engines", n)
		}
		if connections() == 0 {
			t.Error("the engine has no connections of its own")
		}
		_ = holder.nc.Close() // the lock goes on to the waiter
		waiter.expectReply(":")
		if srv.shared.Locks.Len() != 1 {
			t.Fatal("the engine of a holder was dropped")
		}
		_ = waiter.nc.Close()
		redistest.Eventually(t, patience, "the engine to go", func() bool { return srv.shared.Locks.Len() == 0 })
		redistest.Eventually(t, patience, "its connections to close", func() bool { return connections() == 0 })
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

// A session that ends tells its lock engine that it will get no answers: whoever was to get the lock next must go on.
func TestReleaseOfASubscriberThatHangsUpIsSettled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range engineNames() {
		srv := startProxy(t, redis, func(o *Options) { o.Engine = engine })
		holder, waiter := dialClient(t, address(srv)), dialClient(t, address(srv))
		for _, args := range [][]string{{"HELLO", "3"}, {"SUBSCRIBE", "news"}, {"LOCK", "a"}} {
			holder.send(args...)
			holder.expect(1)
		}
		waiter.send("LOCK", "a")
		redistest.Eventually(t, patience, "the waiter to wait", func() bool { return srv.shared.Locks.Waiting() == 1 })
		redis.Pause()
		holder.send("UNLOCK", "a")
		redistest.Eventually(t, patience, "the release to be sent", func() bool {
			return srv.sessionOf(holder).Status().Unanswered == 1
		})
		if err := holder.nc.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		_ = holder.nc.Close()
		redistest.Eventually(t, patience, "the session to end", func() bool { return srv.sessionOf(holder) == nil })
		redis.Continue()
		waiter.expectReply(":")
		waiter.send("UNLOCK", "a")
		waiter.expectReply(":1")
	}
}

// sessionOf finds the session of a client; nil: it has ended.
func (srv *Server) sessionOf(c *peer) *session.Session {
	srv.mu.Lock()
	defer srv.mu.Unlock()
	for _, s := range srv.conns {
		if s.Addr == c.nc.LocalAddr().String() {
			return s
		}
	}
	return nil
}
