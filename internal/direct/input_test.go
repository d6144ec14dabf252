//go:build linux

package direct

import (
	"net"
	"testing"
	"time"
)

func TestLeftSeesTheEndBehindBytesThatHaveNotBeenRead(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	for how, leave := range map[string]func(c *net.TCPConn) error{
		"half-close": (*net.TCPConn).CloseWrite,
		"close":      (*net.TCPConn).Close,
		"reset": func(c *net.TCPConn) error {
			_ = c.SetLinger(0)
			return c.Close()
		},
	} {
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		server, err := ln.Accept()
		if err != nil {
			t.Fatal(err)
		}
		defer server.Close()
		if _, err := client.Write([]byte("LOCK k")); err != nil {
			t.Fatal(err)
		}
		if Left(server) {
			t.Errorf("%s: left before", how)
		}
		if err := leave(client.(*net.TCPConn)); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); !Left(server); { // on loopback it is seen at once
			if time.Now().After(deadline) {
				t.Fatalf("%s: not seen", how)
			}
		}
	}
}
