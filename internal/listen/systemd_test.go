package listen

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

// manager is the socket that systemd listens on.
func manager(t *testing.T) func() string {
	name := filepath.Join(t.TempDir(), "notify")
	conn, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: name, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	t.Setenv("NOTIFY_SOCKET", name)
	return func() string {
		t.Helper()
		b := make([]byte, 4096)
		if err := conn.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
}

func TestTheManagerIsTold(t *testing.T) {
	next := manager(t)
	Ready()
	if got := next(); got != "READY=1" {
		t.Error(got)
	}
	Reloading()
	if got := next(); !strings.HasPrefix(got, "RELOADING=1\nMONOTONIC_USEC=") {
		t.Error(got)
	}
	Stopping(time.Second)
	if got := next(); got != "STOPPING=1\nEXTEND_TIMEOUT_USEC=1000000" {
		t.Error(got)
	}
}

func TestTheWatchdogIsToldWhileTheProcessWorks(t *testing.T) {
	next := manager(t)
	t.Setenv("WATCHDOG_USEC", "20000")
	t.Setenv("WATCHDOG_PID", strconv.Itoa(os.Getpid()))
	ctx, cancel := context.WithCancel(t.Context())
	done, stuck := make(chan struct{}), make(chan struct{})
	calls := 0
	go func() {
		defer close(done)
		Watch(ctx, func() {
			if calls++; calls == 3 {
				<-stuck
			}
		})
	}()
	for range 2 {
		if got := next(); got != "WATCHDOG=1" {
			t.Error(got)
		}
	}
	cancel()
	close(stuck)
	<-done
}

func TestWithoutAWatchdogThereIsNothingToDo(t *testing.T) {
	t.Setenv("WATCHDOG_USEC", "")
	Watch(t.Context(), func() { t.Error("asked") })
}
