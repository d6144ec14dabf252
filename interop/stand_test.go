//go:build interop

package interop

import (
	"bytes"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// stand is what one client is run against: a proxy in front of one Redis, and another Redis without a proxy.
type stand struct {
	behind *redistest.Server // the proxy's
	direct *redistest.Server
	proxy  string // host:port
	log    string // the proxy's log file
}

// newStand starts the two servers and the proxy; all end with t. Extra flags go to the proxy.
func newStand(t *testing.T, at redistest.Place, flags ...string) *stand {
	t.Helper()
	s := &stand{behind: redistest.StartAt(t, at), direct: redistest.StartAt(t, at)}
	s.proxy, s.log = startProxy(t, s.behind.Addr(), flags...)
	return s
}

// startProxy runs the built program in front of the given address until t ends, and returns when it answers a PING.
func startProxy(t *testing.T, upstream string, flags ...string) (addr, log string) {
	t.Helper()
	addr = freeAddr(t)
	p := launch(t, addr, upstream, flags...)
	t.Cleanup(func() { p.end(t) })
	return addr, p.log
}

// process is a running proxy.
type process struct {
	*redistest.Process
	log string // its file
}

// launch runs the built program at addr and returns when it answers a PING. The caller ends it.
func launch(t *testing.T, addr, upstream string, flags ...string) *process {
	t.Helper()
	p := &process{log: filepath.Join(t.TempDir(), "lockproxy.log")}
	file, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	cmd := exec.Command(program, append([]string{"--listen", addr, "--upstream", upstream}, flags...)...)
	cmd.Stderr = file
	if p.Process, err = redistest.StartProcess(cmd); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 10*time.Second, "the proxy to answer PING", func() bool {
		if !p.Running() {
			t.Fatalf("the proxy ended at start: %v\n%s", p.Err, tail(p.log))
		}
		return strings.HasPrefix(ask(addr, "PING"), "+PONG")
	})
	return p
}

// end stops the proxy, checks that no session of it has panicked, and shows its log if the test failed.
func (p *process) end(t *testing.T) {
	defer func() {
		text := tail(p.log)
		if strings.Contains(text, "panic") {
			t.Error("the proxy's log speaks of a panic")
		}
		if t.Failed() {
			t.Logf("end of the proxy's log:\n%s", text)
		}
	}()
	p.Signal(syscall.SIGTERM)
	if code := p.Exit(t, 15*time.Second); code != 0 {
		t.Errorf("the proxy ended with code %d", code)
	}
}

// environment is what a program needs to know, on top of this process's own environment.
func (s *stand) environment(extra ...string) []string {
	return append(os.Environ(), append([]string{
		"REDIS_URL=redis://" + s.direct.Addr(),
		"LOCKPROXY_URL=redis://" + s.proxy,
		"BEHIND_URL=redis://" + s.behind.Addr(),
	}, extra...)...)
}

// ask sends one inline command on a connection of its own and returns the first bytes of the reply, or nothing.
func ask(addr, command string) string {
	c, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return ""
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(2 * time.Second))
	if _, err := c.Write([]byte(command + "\r\n")); err != nil {
		return ""
	}
	b := make([]byte, 4096)
	n, _ := c.Read(b)
	return string(b[:n])
}

func freeAddr(t *testing.T) string {
	t.Helper()
	return "127.0.0.1:" + strconv.Itoa(redistest.Port(t))
}

// tail returns the last 4 KiB of a file.
func tail(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-4096):]))
}

// upstreams runs the test with each kind of Redis that the machine has or can fetch, at the same time.
func upstreams(t *testing.T, test func(t *testing.T, at redistest.Place)) {
	t.Parallel()
	for kind, server := range map[string]func(t *testing.T) string{
		"redis": func(*testing.T) string { return "redis-server" }, "valkey": valkey,
	} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			at := redistest.Loopback
			at.Program = server(t)
			t.Logf("upstream: %s", version(at.Program))
			test(t, at)
		})
	}
}

func version(server string) string {
	out, err := exec.Command(server, "--version").CombinedOutput()
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(out))
}
