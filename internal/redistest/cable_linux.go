package redistest

import (
	"net"
	"os"
	"os/exec"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Cable is two hosts with one connection between them, in network namespaces of their own.
type Cable struct {
	t          testing.TB
	Near       *net.TCPConn // this end of the connection
	namespaces [2]int       // of the hosts: file descriptors
}

// Plug connects two hosts, or skips the test where there are no namespaces to be had.
func Plug(t testing.TB) *Cable {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	c := &Cable{t: t}
	hosts := [2]string{"198.18.0.1/30", "198.18.0.2/30"}
	var err error
	for i := range hosts {
		c.on(-1, func() {
			if err = unix.Unshare(unix.CLONE_NEWNET); err == nil {
				c.namespaces[i], err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0)
			}
		})
		if err != nil {
			t.Skipf("no network namespaces: %v", err)
		}
	}
	t.Cleanup(func() { _ = unix.Close(c.namespaces[0]) })
	far := os.NewFile(uintptr(c.namespaces[1]), "namespace")
	t.Cleanup(func() { far.Close() })
	link := exec.Command("ip", "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", "/proc/self/fd/3")
	link.ExtraFiles = []*os.File{far}
	var out []byte
	c.on(0, func() { out, err = link.CombinedOutput() })
	if err != nil {
		t.Skipf("no virtual cable: %v: %s", err, out)
	}
	for i, addr := range hosts {
		c.ip(i, "addr", "add", addr, "dev", "cable")
		c.ip(i, "link", "set", "cable", "up")
	}
	var ln net.Listener
	c.on(1, func() { // Linux answers a probe only half a second after another one, which is longer than the silence here
		err = os.WriteFile("/proc/sys/net/ipv4/tcp_invalid_ratelimit", []byte("0"), 0)
	})
	if err != nil {
		t.Skip(err)
	}
	c.on(1, func() { ln, err = net.Listen("tcp", "198.18.0.2:0") })
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	var near, peer net.Conn
	c.on(0, func() { near, err = net.Dial("tcp", ln.Addr().String()) })
	if err == nil {
		peer, err = ln.Accept()
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		near.Close()
		peer.Close()
	})
	c.Near, _ = near.(*net.TCPConn)
	return c
}

// on runs f in the namespace of a host; -1: of the test, in a thread that ends.
func (c *Cable) on(host int, f func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // the thread ends with the goroutine
		if host >= 0 {
			if err := unix.Setns(c.namespaces[host], unix.CLONE_NEWNET); err != nil {
				c.t.Error(err)
				return
			}
		}
		f()
	}()
	<-done
}

func (c *Cable) ip(host int, args ...string) {
	c.t.Helper()
	c.on(host, func() {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			c.t.Errorf("ip %v: %v: %s", args, err, out)
		}
	})
}

// Unplug has the far host vanish: what is sent to it is lost.
func (c *Cable) Unplug() { c.ip(1, "link", "set", "cable", "down") }
