package blackbox

import (
	"net"
	"testing"

	"github.com/lockproxy/lockproxy/internal/proxytest"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// A session that ends tells its lock engine that it will get no answers: whoever was to get the lock next must go on.
func TestReleaseOfASubscriberThatHangsUpIsSettled(t *testing.T) {
	t.Parallel()
	redis := redistest.Start(t)
	srv := proxytest.Start(t, redis)
	holder, waiter := srv.Dial(t), srv.Dial(t)
	for _, args := range [][]string{{"HELLO", "3"}, {"SUBSCRIBE", "news"}, {"LOCK", "a"}} {
		holder.Send(args...)
		holder.Expect(1)
	}
	waiter.Send("LOCK", "a")
	proxytest.WaitFor(t, "the waiter to wait", func() bool { return srv.Stats().Waiting == 1 })
	redis.Pause()
	holder.Send("UNLOCK", "a")
	proxytest.WaitFor(t, "the release to be sent", func() bool {
		return srv.StatusOf(holder).Unanswered == 1
	})
	if err := holder.Conn.(*net.TCPConn).SetLinger(0); err != nil {
		t.Fatal(err)
	}
	_ = holder.Conn.Close()
	proxytest.WaitFor(t, "the session to end", func() bool { return srv.StatusOf(holder) == nil })
	redis.Continue()
	waiter.Gets(":")
	waiter.Script("UNLOCK a", ":1")
}
