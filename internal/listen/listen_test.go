package listen

import (
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// open is a listener that the test closes.
func open(t *testing.T, s *Sockets, addr string) *Listener {
	t.Helper()
	var ln *Listener
	var err error
	if filepath.IsAbs(addr) {
		ln, err = s.Unix(addr)
	} else {
		ln, err = s.TCP(addr, net.KeepAliveConfig{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

func refused(t *testing.T, addr string) {
	t.Helper()
	var err error
	if filepath.IsAbs(addr) {
		_, err = new(Sockets).Unix(addr)
	} else {
		_, err = new(Sockets).TCP(addr, net.KeepAliveConfig{})
	}
	if !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%s: %v", addr, err)
	}
}

// As with Redis, nginx and HAProxy. Package net would open IPv6 as well.
func TestAllAddressesOfIPv4AreNoneOfIPv6(t *testing.T) {
	probe, err := net.Listen("tcp", "[::1]:0")
	if err != nil {
		t.Skip(err)
	}
	probe.Close()
	for addr, want := range map[string]bool{"0.0.0.0:0": false, ":0": true, "[::]:0": true} {
		ln := open(t, nil, addr)
		_, port, err := net.SplitHostPort(ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		nc, err := net.Dial("tcp", net.JoinHostPort("::1", port))
		if err == nil {
			nc.Close()
		}
		if (err == nil) != want {
			t.Errorf("%s: a connection by IPv6: %v", addr, err)
		}
		if nc, err = net.Dial("tcp", net.JoinHostPort("127.0.0.1", port)); err != nil {
			t.Errorf("%s: a connection by IPv4: %v", addr, err)
		} else {
			nc.Close()
		}
	}
}

// addresses are one of each kind.
func addresses(t *testing.T) []string {
	t.Helper()
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer free.Close()
	dir, err := os.MkdirTemp("", "lp") // short enough for a unix socket
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return []string{free.Addr().String(), filepath.Join(dir, "s")}
}

// Two processes serve one address only while the first one is about to stop. Then both accept, and the last one of
// three is refused again.
func TestAnAddressIsSharedOnlyWithAProcessThatYieldsIt(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no ports are shared here")
	}
	for _, addr := range addresses(t) {
		first := open(t, nil, addr)
		refused(t, addr)
		first.Yield()
		second := open(t, nil, addr)
		refused(t, addr)

		served := make(chan string, 100)
		for name, ln := range map[string]*Listener{"first": first, "second": second} {
			go func() {
				for {
					c, err := ln.Accept()
					if err != nil {
						return
					}
					c.Close()
					served <- name
				}
			}()
		}
		by := map[string]int{}
		for range 50 {
			c, err := net.Dial(second.Addr().Network(), addr)
			if err != nil {
				t.Fatal(err)
			}
			by[<-served]++
			c.Close()
		}
		if second.Addr().Network() == "tcp" && (by["first"] == 0 || by["second"] == 0) {
			t.Errorf("%v", by)
		}
		first.Close()
		c, err := net.Dial(second.Addr().Network(), addr)
		if err != nil {
			t.Fatalf("after the end of the first: %v", err)
		}
		c.Close()
		if by := <-served; by != "second" {
			t.Errorf("served by the %s", by)
		}
		second.Close()
		if _, err := net.Dial(second.Addr().Network(), addr); err == nil {
			t.Error("a closed address can be connected to")
		}
	}
}

// The file of the next process may have the number that the file of the first one had.
func TestAClosedSocketLeavesTheFileOfTheNextOneAlone(t *testing.T) {
	path := addresses(t)[1]
	first := open(t, new(Sockets), path)
	_ = first.Listener.Close() // Close may have come this far when the next process opens the address
	open(t, new(Sockets), path)
	_ = first.Close()
	nc, err := net.Dial("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestClientsInTheQueueAreAccepted(t *testing.T) {
	for _, addr := range addresses(t) {
		ln := open(t, nil, addr)
		const n = 20
		for range n {
			c, err := net.Dial(ln.Addr().Network(), addr)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
		}
		ln.Finish(5 * time.Second)
		for range n {
			if _, err := ln.Accept(); err != nil {
				t.Fatal(err)
			}
		}
		ln.Finish(0)
		if _, err := ln.Accept(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Error(err)
		}
	}
}

// A socket that systemd has passed is found by its address, and outlives the process.
func TestPassedSocketsAreFoundByTheirAddress(t *testing.T) {
	for _, addr := range addresses(t) {
		network := "tcp"
		if filepath.IsAbs(addr) {
			network = "unix"
		}
		system, err := net.Listen(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer system.Close()
		f, err := system.(interface{ File() (*os.File, error) }).File()
		if err != nil {
			t.Fatal(err)
		}
		passed, err := net.FileListener(f)
		if err != nil {
			t.Fatal(err)
		}
		f.Close()
		s := NewSockets([]net.Listener{passed})
		if left := s.Left(); len(left) != 1 || left[0] != addr {
			t.Errorf("left: %v", left)
		}
		ln := open(t, s, addr)
		if left := s.Left(); len(left) != 0 {
			t.Errorf("left: %v", left)
		}
		c, err := net.Dial(network, addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		ln.Finish(time.Minute)
		if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
			t.Error(err)
		}
		next, err := system.Accept() // as the next process
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(next, "x"); err != nil {
			t.Error(err)
		}
		next.Close()
	}
}
