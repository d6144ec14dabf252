package redistest

import (
	"net"
	"testing"
)

// Place is where a server runs: in a network namespace of its own, for instance. Its unix socket is reached from
// anywhere.
type Place struct {
	Host    string   // the address that it binds, and by which other servers know it
	Inside  []string // what comes before the command that starts it: "ip", "netns", "exec", "a"
	Program string   // the server's binary; empty: the one of all tests
}

// Loopback is where servers run unless a test says otherwise.
var Loopback = Place{Host: "127.0.0.1"}

// at is the place of the i-th server; without any, Loopback.
func at(places []Place, i int) Place {
	if len(places) == 0 {
		return Loopback
	}
	return places[i]
}

// IPv6 is the loopback interface with its IPv6 address, if the machine has one; else the test is skipped.
func IPv6(t testing.TB) Place {
	t.Helper()
	l, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skipf("this machine has no ::1: %v", err)
	}
	_ = l.Close()
	return Place{Host: "::1"}
}
