package dial

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

func TestConnectionsToTheOldAddressEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		primary, stop := topology.NewPrimary(), make(chan struct{})
		primary.Publish("old")
		d := New(Options{Resolver: primary, Stop: stop})
		begin, never := time.Now(), time.Hour
		ended := map[string]time.Duration{}
		// serve has a lane whose requests settle after a time.
		serve := func(name, addr string, settles time.Duration) *conn {
			nc := new(conn)
			d.conns.Opened(nc, addr, nil)
			d.Serve("p", nc, func() bool { return time.Since(begin) >= settles }, func() {
				d.conns.At(nc) // what ends with it may ask
				if _, again := ended[name]; !again {
					ended[name] = time.Since(begin)
				}
			})
			return nc
		}
		serve("idle", "old", 0)
		serve("settles", "old", 10*time.Millisecond)
		serve("stands", "old", never)
		d.conns.Closed(serve("has ended", "old", 0))
		question := new(conn)
		d.conns.Opened(question, "old", nil)
		if len(ended) > 0 || question.closed {
			t.Fatal("the server has not moved")
		}
		primary.Publish("new")
		serve("too late", "old", never)
		serve("new", "new", 0)
		d.Moved("p")
		want := map[string]time.Duration{
			"idle": 0, "settles": 10 * time.Millisecond, "stands": settleLimit, "too late": 0,
		}
		for name, after := range want {
			if got, ok := ended[name]; !ok || got != after {
				t.Errorf("%s: ended %v after %v, want %v", name, ok, got, after)
			}
		}
		if len(ended) != len(want) || !question.closed {
			t.Errorf("ended: %v; the question %v", ended, question.closed)
		}
		primary.Publish("newer")
		serve("at the end of the proxy", "new", never)
		close(stop)
		if d.Moved("p"); time.Since(begin) > 2*settleLimit {
			t.Error("the end of the proxy waits for a connection that does not settle")
		}
	})
}
