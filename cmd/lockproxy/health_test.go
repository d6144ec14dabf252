package main

import (
	"bufio"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// serveOnce answers one connection's first command with reply, then closes; an empty reply is silence.
func serveOnce(t *testing.T, reply string) (address string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		conn, err := listener.Accept()
		listener.Close() // a second question would wait
		if err != nil {
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for range 3 { // *1, $4, PING
			if _, err := in.ReadString('\n'); err != nil {
				return
			}
		}
		if reply != "" {
			_, _ = io.WriteString(conn, reply)
			return
		}
		_, _ = in.ReadByte() // until the other side gives up
	}()
	t.Cleanup(func() { listener.Close(); <-ended })
	return listener.Addr().String()
}

func TestReadyIsOnlyPongOrNoauth(t *testing.T) {
	tests := []struct {
		reply, want string
	}{
		{"+PONG\r\n", ""},
		{"-NOAUTH Authentication required.\r\n", ""},
		{"-LOADING Redis is loading\r\n", "PING was answered -LOADING Redis is loading"},
		{"HTTP/1.1 400 Bad Request\r\n\r\n", "PING was answered HTTP/1.1 400 Bad Request"},
		{strings.Repeat("x", 1<<16), "read the answer"},
		{"+PO", "read the answer"},
	}
	for _, test := range tests {
		patience := 10 * time.Second
		if test.want == "read the answer" { // its end is waited for
			patience = time.Second
		}
		err := checkReady(t.Context(), probe{address: serveOnce(t, test.reply), timeout: patience})
		if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
			t.Errorf("%.40q: got %v, want %q", test.reply, err, test.want)
		}
	}
}

func TestHealthDoesNotWaitForEver(t *testing.T) {
	if err := checkHealth(t.Context(), probe{address: serveOnce(t, ""), timeout: 50 * time.Millisecond}); err == nil {
		t.Error("a silent server is healthy")
	}
}
