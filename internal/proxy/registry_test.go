package proxy_test

import (
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/proxy"
	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A lock engine has connections of its own to Redis, for as long as its identity has something to do with locks.
func TestUnusedLockEnginesAreDropped(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	redis.Do(t, "ACL", "SETUSER", "tenant", "on", ">pw", "~*", "&*", "+@all")
	srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.SetLockIdle(50 * time.Millisecond) })
	connections := func() int { // that speak RESP3, as those of the engine do: others, in the clients' RESP2, are opened ahead of need
		return strings.Count(redis.Do(t, "CLIENT", "LIST").(string), "user=tenant redir=-1 resp=3")
	}
	login := func() *proxytest.Client {
		c := proxytest.Dial(t, srv.Addr())
		c.Send("AUTH", "tenant", "pw")
		c.ExpectReply("+OK")
		c.Send("GET", "a")
		c.ExpectReply("$")
		return c
	}
	proxytest.SlowFrom(srv, 100)
	for i := range 2 { // a dropped engine is made anew, and its log of slow holds is still there
		holder, waiter := login(), login()
		if got := holder.Quiet("LOCKSLOW", "LEN"); (got == ":0\r\n") != (i == 0) {
			t.Errorf("round %d: %q slow holds", i, got)
		}
		holder.Send("LOCK", "a", "GRACE", "0")
		holder.ExpectReply(":")
		waiter.Send("LOCK", "a")
		redistest.Eventually(t, proxytest.Patience, "the waiter's subscription", func() bool {
			return fmt.Sprint(redis.Do(t, "PUBSUB", "NUMSUB", "redisson_lock__channel:{a}")) == "[redisson_lock__channel:{a} 1]"
		})
		if n := srv.Shared().Locks.Len(); n != 1 {
			t.Fatalf("%d engines", n)
		}
		if connections() == 0 {
			t.Error("the engine has no connections of its own")
		}
		_ = holder.Conn.Close() // the lock goes on to the waiter
		waiter.ExpectReply(":")
		if srv.Shared().Locks.Len() != 1 {
			t.Fatal("the engine of a holder was dropped")
		}
		_ = waiter.Conn.Close()
		redistest.Eventually(t, proxytest.Patience, "the engine to go", func() bool { return srv.Shared().Locks.Len() == 0 })
		redistest.Eventually(t, proxytest.Patience, "its connections to close", func() bool { return connections() == 0 })
		redis.Do(t, "DEL", "a")
	}
}

// A session that ends tells its lock engine that it will get no answers: whoever was to get the lock next must go on.
func TestReleaseOfASubscriberThatHangsUpIsSettled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	for _, engine := range proxytest.Engines() {
		srv := proxytest.Start(t, redis, func(o *proxy.Options) { o.Engine = engine })
		holder, waiter := proxytest.Dial(t, srv.Addr()), proxytest.Dial(t, srv.Addr())
		for _, args := range [][]string{{"HELLO", "3"}, {"SUBSCRIBE", "news"}, {"LOCK", "a"}} {
			holder.Send(args...)
			holder.Expect(1)
		}
		waiter.Send("LOCK", "a")
		redistest.Eventually(t, proxytest.Patience, "the waiter to wait", func() bool { return srv.Stats().Waiting == 1 })
		redis.Pause()
		holder.Send("UNLOCK", "a")
		redistest.Eventually(t, proxytest.Patience, "the release to be sent", func() bool {
			return srv.StatusOf(holder).Unanswered == 1
		})
		if err := holder.Conn.(*net.TCPConn).SetLinger(0); err != nil {
			t.Fatal(err)
		}
		_ = holder.Conn.Close()
		redistest.Eventually(t, proxytest.Patience, "the session to end", func() bool { return srv.StatusOf(holder) == nil })
		redis.Continue()
		waiter.ExpectReply(":")
		waiter.Send("UNLOCK", "a")
		waiter.ExpectReply(":1")
	}
}
