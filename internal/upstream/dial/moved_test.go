package dial

import (
	"errors"
	"io"
	"net"
	"syscall"
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
		left, ended := map[string]bool{}, map[string]time.Duration{}
		// serve has a lane whose requests settle after a time.
		serve := func(name, addr string, settles time.Duration) *conn {
			nc := new(conn)
			d.conns.Opened(nc, addr, nil)
			d.Serve("p", nc, func() bool {
				left[name] = true // it takes no more requests
				return time.Since(begin) >= settles
			}, func() {
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
			if got, ok := ended[name]; !ok || got != after || !left[name] {
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

// Requests that were given up may have been sent again elsewhere.
func TestBytesOnTheirWayToTheOldAddressAreDropped(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	nc, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	old, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer old.Close()
	_ = nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond))
	for err == nil { // until the buffers of the kernel are full
		_, err = nc.Write(make([]byte, 1<<20))
	}
	primary := topology.NewPrimary()
	primary.Publish(ln.Addr().String())
	d := New(Options{Resolver: primary})
	d.conns.Opened(nc, ln.Addr().String(), nil)
	d.Serve("p", nc, func() bool { return true }, func() { nc.Close() })
	primary.Publish("new")
	d.Moved("p")
	_ = old.SetReadDeadline(time.Now().Add(10 * time.Second))
	if n, err := io.Copy(io.Discard, old); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("the old server has got %d bytes: %v", n, err)
	}
}
