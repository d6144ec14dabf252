package redistest

import (
	"net"
	"path/filepath"
	"testing"
)

// TCPConns is Conns for a connection on loopback.
func TCPConns(t testing.TB) (accepted, dialed *net.TCPConn) {
	t.Helper()
	a, d := Conns(t, "tcp")
	return a.(*net.TCPConn), d.(*net.TCPConn)
}

// Conns returns the two ends of a connection by "tcp", on loopback, or by "unix". They are closed when the test ends.
func Conns(t testing.TB, network string) (accepted, dialed net.Conn) {
	t.Helper()
	addr := "127.0.0.1:0"
	if network == "unix" {
		addr = filepath.Join(t.TempDir(), "s")
	}
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	if dialed, err = net.Dial(network, ln.Addr().String()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dialed.Close() })
	if accepted, err = ln.Accept(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return accepted, dialed
}
