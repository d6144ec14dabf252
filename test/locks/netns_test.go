package locks

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// namespaces is a network of network namespaces: one per party, with a router between them. The router drops silently
// what a rule tells it to, so that packets are really lost and connections may outlive that.
//
//	workers 198.18.0.2 ─┐                ┌─ redis 198.18.3.2
//	                    ├── router ──────┤
//	proxy 1 198.18.1.2 ─┘                └─ proxy 2 198.18.2.2
//
// More servers are 198.18.4.2 and so on.
//
// Its methods report failures to the test and belong on the test's goroutine.
type namespaces struct {
	t       *testing.T
	prefix  string
	parties []node
	rules   [][]string // in force
}

// networks counts those of this process: tests that run side by side have one each.
var networks atomic.Int64

// newNamespaces connects workers, proxies and some servers. It skips the test where there are no namespaces to be had.
func newNamespaces(t *testing.T, servers int) *namespaces {
	t.Helper()
	if reason := noNamespaces(); reason != "" {
		t.Skipf("no network namespaces for this test: %s", reason)
	}
	n := &namespaces{t: t, prefix: fmt.Sprintf("lp%dn%dn", os.Getpid(), networks.Add(1)), parties: []node{workers, proxy1, proxy2}}
	for i := range servers {
		n.parties = append(n.parties, store+node(i))
	}
	router := n.prefix + "router"
	t.Cleanup(n.remove)
	n.ip("netns", "add", router)
	for _, who := range n.parties {
		ns, far := n.netns(who), fmt.Sprintf("to%d", who)
		n.ip("netns", "add", ns)
		n.ip("-n", router, "link", "add", far, "type", "veth", "peer", "name", "eth0", "netns", ns)
		n.ip("-n", router, "addr", "add", fmt.Sprintf("198.18.%d.1/30", who), "dev", far)
		n.ip("-n", router, "link", "set", far, "up")
		n.ip("-n", ns, "addr", "add", n.host(who)+"/30", "dev", "eth0")
		n.ip("-n", ns, "link", "set", "eth0", "up")
		n.ip("-n", ns, "link", "set", "lo", "up")
		n.ip("-n", ns, "route", "add", "default", "via", fmt.Sprintf("198.18.%d.1", who))
	}
	n.ip("netns", "exec", router, "sh", "-c", forwarding)
	return n
}

const forwarding = "echo 1 >/proc/sys/net/ipv4/ip_forward"

// noNamespaces says why there are none to be had; empty: there are.
var noNamespaces = sync.OnceValue(func() string {
	if runtime.GOOS != "linux" {
		return "they are Linux's"
	}
	if os.Geteuid() != 0 {
		return "they need root"
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return err.Error() + " (package iproute2)"
	}
	// All that is used may be missing by itself: some kernels have no veth or no rules, some /proc is read-only.
	probe := fmt.Sprintf("lp%dprobe", os.Getpid())
	defer func() { _ = exec.Command("ip", "netns", "del", probe).Run() }()
	for _, args := range [][]string{
		{"netns", "add", probe},
		{"-n", probe, "link", "add", "probe0", "type", "veth", "peer", "name", "probe1"},
		{"-n", probe, "rule", "add", "from", "198.18.0.2", "to", "198.18.1.2", "blackhole"},
		{"netns", "exec", probe, "sh", "-c", forwarding},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Sprintf("ip %s: %v: %s", strings.Join(args, " "), err, strings.TrimSpace(string(out)))
		}
	}
	return ""
})

func (n *namespaces) remove() {
	for _, who := range n.parties {
		_ = exec.Command("ip", "netns", "del", n.netns(who)).Run()
	}
	_ = exec.Command("ip", "netns", "del", n.prefix+"router").Run()
}

func (n *namespaces) ip(args ...string) {
	n.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		n.t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

func (n *namespaces) netns(who node) string { return fmt.Sprintf("%s%d", n.prefix, who) }

// place is where a server runs.
func (n *namespaces) place(who node) redistest.Place {
	return redistest.Place{Host: n.host(who), Inside: []string{"ip", "netns", "exec", n.netns(who)}}
}

func (n *namespaces) host(who node) string { return fmt.Sprintf("198.18.%d.2", who) }

func (n *namespaces) cut(from, to node) {
	rule := []string{"from", n.host(from), "to", n.host(to), "blackhole"}
	n.ip(append([]string{"-n", n.prefix + "router", "rule", "add"}, rule...)...)
	n.rules = append(n.rules, rule)
}

func (n *namespaces) heal() {
	for _, rule := range n.rules {
		n.ip(append([]string{"-n", n.prefix + "router", "rule", "del"}, rule...)...)
	}
	n.rules = nil
}

func (n *namespaces) addr(who node, port string) string { return net.JoinHostPort(n.host(who), port) }
