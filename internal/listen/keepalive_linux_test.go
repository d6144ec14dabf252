package listen

import (
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The connections of a socket that systemd has passed have the keepalive of those of any other socket.
func TestConnectionsHaveTheKeepaliveThatWasAskedFor(t *testing.T) {
	alive := net.KeepAliveConfig{Enable: true, Idle: 33 * time.Second, Interval: 11 * time.Second, Count: 3}
	inherited, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	for name, ask := range map[string]struct {
		sockets *Sockets
		addr    string
	}{
		"opened": {nil, "127.0.0.1:0"},
		"passed": {NewSockets([]net.Listener{inherited}), inherited.Addr().String()},
	} {
		ln, err := ask.sockets.TCP(ask.addr, alive)
		if err != nil {
			t.Fatal(err)
		}
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		raw, err := nc.(*net.TCPConn).SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		err = raw.Control(func(fd uintptr) {
			for option, want := range map[int]int{unix.TCP_KEEPIDLE: 33, unix.TCP_KEEPINTVL: 11, unix.TCP_KEEPCNT: 3} {
				if got, err := unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, option); err != nil || got != want {
					t.Errorf("%s: option %d is %d (%v), want %d", name, option, got, err, want)
				}
			}
			if on, err := unix.GetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_KEEPALIVE); err != nil || on != 1 {
				t.Errorf("%s: keepalive is %d (%v)", name, on, err)
			}
		})
		if err != nil {
			t.Error(err)
		}
		_, _, _ = client.Close(), nc.Close(), ln.Close()
	}
}
