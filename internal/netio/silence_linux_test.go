package netio

import (
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// ended is the time after which a read finds that the connection has ended; limit: it has not.
func ended(t *testing.T, nc net.Conn, limit time.Duration) time.Duration {
	t.Helper()
	begun := time.Now()
	if err := nc.SetReadDeadline(begun.Add(limit)); err != nil {
		t.Fatal(err)
	}
	_, err := nc.Read(make([]byte, 1))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return limit
	}
	if err == nil {
		t.Fatal("bytes came")
	}
	return time.Since(begun)
}

const silenceLimit = 400 * time.Millisecond

func TestAPeerThatHasVanishedIsNoticed(t *testing.T) {
	c := redistest.Plug(t)
	told := make(chan time.Duration, 1)
	defer NewGuard(c.Near, silenceLimit, func(silent time.Duration) { told <- silent }).Stop()
	c.Unplug()
	if took := ended(t, c.Near, 2*silenceLimit); took < 2*silenceLimit {
		t.Errorf("a connection without outstanding bytes has ended after %s", took)
	}
	if _, err := c.Near.Write([]byte("reply")); err != nil {
		t.Fatal(err)
	}
	if took := ended(t, c.Near, time.Minute); took < silenceLimit || took == time.Minute {
		t.Errorf("the end is noticed after %s", took)
	}
	if silent := <-told; silent < silenceLimit {
		t.Errorf("the silence is %s", silent)
	}
}

// fill writes until the far host has no room and nothing is taken any more.
func fill(t *testing.T, nc *net.TCPConn) {
	t.Helper()
	for b := make([]byte, 64<<10); ; {
		if err := nc.SetWriteDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if _, err := nc.Write(b); err != nil {
			return
		}
	}
}

// A peer that does not read has no room for more bytes, and acknowledges the probes for room. When it has vanished, it
// does not.
func TestAPeerThatDoesNotReadIsNoneThatHasVanished(t *testing.T) {
	c := redistest.Plug(t)
	defer NewGuard(c.Near, silenceLimit, func(time.Duration) {}).Stop()
	fill(t, c.Near)
	if took := ended(t, c.Near, 5*silenceLimit); took < 5*silenceLimit {
		t.Errorf("a peer that does not read is closed after %s", took)
	}
	c.Unplug()
	if took := ended(t, c.Near, time.Minute); took == time.Minute {
		t.Error("a peer without room that has vanished is not noticed")
	}
}
