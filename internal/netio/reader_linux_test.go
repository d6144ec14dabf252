package netio

import (
	"errors"
	"io"
	"net"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// ran waits for Run.
func ran(t *testing.T, r *Reader, handle func(b []byte) bool) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- r.Run(handle) }()
	select {
	case err := <-done:
		return err
	case <-time.After(20 * time.Second):
		t.Fatal("the reader waits, and nothing is to come")
		return nil
	}
}

// The runtime reports bytes and the end of the input once if they come together. A read that takes all bytes may not be
// the last one.
func TestTheEndThatComesWithBytesIsSeen(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		for _, size := range []int{1, 2, 16} {
			own, other := redistest.Conns(t, network)
			if _, err := other.Write([]byte("a")); err != nil {
				t.Fatal(err)
			}
			got := ""
			err := ran(t, NewReader(own, Space(size)), func(b []byte) bool {
				if got += string(b); got == "a" {
					go func() { // the reader waits by then, or is about to
						onSocket(other, CorkFD) // bytes and end in one packet
						_, _ = other.Write([]byte("xy"))
						_ = other.Close()
					}()
				}
				return true
			})
			if got != "axy" || !errors.Is(err, io.EOF) {
				t.Errorf("%s, %d bytes a read: %q, %v", network, size, got, err)
			}
		}
	}
}

// A client that is killed with unread replies ends its connection with a reset.
func TestAResetThatComesWithBytesIsSeen(t *testing.T) {
	own, other := redistest.Conns(t, "tcp")
	if _, err := other.Write([]byte("a")); err != nil {
		t.Fatal(err)
	}
	got := ""
	err := ran(t, NewReader(own, Space(16)), func(b []byte) bool {
		if got += string(b); got == "a" {
			_, _ = other.Write([]byte("xy"))
			_ = other.(*net.TCPConn).SetLinger(0)
			_ = other.Close()
		}
		return true
	})
	if !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("%q, %v", got, err)
	}
}

// Each answer brings the next bytes. No bytes are missed, and reading them makes no garbage.
func TestBytesAreReadAsTheyCome(t *testing.T) {
	const rounds = 1000
	for _, network := range []string{"tcp", "unix"} {
		own, other := redistest.Conns(t, network)
		r, ten, n := NewReader(own, Space(4)), make([]byte, 10), 0
		if _, err := other.Write(ten); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		err := ran(t, r, func(b []byte) bool {
			if n += len(b); n%len(ten) == 0 {
				_, _ = other.Write(ten)
			}
			return n < rounds*len(ten)
		})
		runtime.ReadMemStats(&after)
		if err != nil || n != rounds*len(ten) {
			t.Errorf("%s: %d bytes, %v", network, n, err)
		}
		if garbage := after.Mallocs - before.Mallocs; garbage > rounds {
			t.Errorf("%s: %d allocations for %d reads", network, garbage, 3*rounds)
		}
	}
}
