//go:build linux

package netio

import (
	"net"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

func TestLeftSeesTheEndBehindBytesThatHaveNotBeenRead(t *testing.T) {
	for how, leave := range map[string]func(c *net.TCPConn) error{
		"half-close": (*net.TCPConn).CloseWrite,
		"close":      (*net.TCPConn).Close,
		"reset": func(c *net.TCPConn) error {
			_ = c.SetLinger(0)
			return c.Close()
		},
	} {
		server, client := redistest.TCPConns(t)
		if _, err := client.Write([]byte("LOCK k")); err != nil {
			t.Fatal(err)
		}
		if Left(server) {
			t.Errorf("%s: left before", how)
		}
		if err := leave(client); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); !Left(server); { // on loopback it is seen at once
			if time.Now().After(deadline) {
				t.Fatalf("%s: not seen", how)
			}
		}
	}
}
