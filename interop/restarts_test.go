//go:build interop

package interop

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// restartClaims are what clients of two proxies behind HAProxy prove while the proxies are restarted one after the other.
var restartClaims = []string{
	"plain",  // clients without locks see no error, and each command of theirs is executed once
	"tasks",  // tasks that name an OWNER take turns: no lock is lost, and none is held by two
	"holder", // a client that names an OWNER keeps its lock for longer than any of the proxies lives
}

// restartedFlags make a drain short: the holder does not release its lock, so each drain lasts until drain.timeout.
var restartedFlags = []string{"--lock-lease", "5s", "--drain-delay", "1s", "--drain-timeout", "1s"}

func TestRollingRestarts(t *testing.T) {
	balancer := startHAProxy(t, redistest.Start(t))
	interpreter := python(t)

	cmd := exec.Command(interpreter, abs(t, "python", "restarts.py"))
	cmd.Env = append(os.Environ(), "LOCKPROXY_URL=redis://"+balancer.addr, "BEHIND_URL=redis://"+balancer.redis.Addr())
	input, err := cmd.StdinPipe() // its end tells the program to end
	if err != nil {
		t.Fatal(err)
	}
	var clients sync.WaitGroup
	defer clients.Wait()
	defer input.Close()
	clients.Go(func() { runClaims(t, restartClaims, cmd) })
	for _, p := range []*restartable{balancer.a, balancer.b, balancer.a, balancer.b} {
		p.restart(t, balancer.redis.Addr())
	}
}

// balancer is HAProxy in front of two proxies.
type balancer struct {
	addr  string
	redis *redistest.Server
	a, b  *restartable
}

// startHAProxy runs the example of a configuration, with the addresses of this test.
func startHAProxy(t *testing.T, redis *redistest.Server) *balancer {
	t.Helper()
	path, err := exec.LookPath("haproxy")
	if err != nil {
		if path, err = exec.LookPath("/usr/sbin/haproxy"); err != nil {
			missing(t, "there is no haproxy here")
		}
	}
	x := &balancer{addr: freeAddr(t), redis: redis, a: newRestartable(t, redis.Addr()), b: newRestartable(t, redis.Addr())}
	text, err := os.ReadFile(filepath.Join(root, "configs", "haproxy.cfg"))
	if err != nil {
		t.Fatal(err)
	}
	config := string(text)
	for before, after := range map[string]string{
		"bind :7379":                       "bind " + x.addr,
		"server a 10.0.0.1:7379 port 9121": x.a.server("a"),
		"server b 10.0.0.2:7379 port 9121": x.b.server("b"),
	} {
		if strings.Count(config, before) != 1 {
			t.Fatalf("the example does not have one %q", before)
		}
		config = strings.Replace(config, before, after, 1)
	}
	dir := t.TempDir()
	file := filepath.Join(dir, "haproxy.cfg")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(path, "-db", "-f", file)
	log, err := os.Create(filepath.Join(dir, "haproxy.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("end of HAProxy's log:\n%s", tail(log.Name()))
		}
	})
	redistest.Eventually(t, 10*time.Second, "HAProxy", func() bool { return strings.HasPrefix(ask(x.addr, "PING"), "+PONG") })
	return x
}

// restartable is a proxy that keeps its addresses when it is restarted.
type restartable struct {
	addr, admin string
	*process
}

func newRestartable(t *testing.T, upstream string) *restartable {
	t.Helper()
	p := &restartable{addr: freeAddr(t), admin: freeAddr(t)}
	p.start(t, upstream)
	t.Cleanup(func() { p.end(t) })
	return p
}

func (p *restartable) start(t *testing.T, upstream string) {
	t.Helper()
	p.process = launch(t, p.addr, upstream, append(restartedFlags, "--admin-listen", p.admin)...)
}

// server is the proxy's line in HAProxy's configuration.
func (p *restartable) server(name string) string {
	_, port, _ := net.SplitHostPort(p.admin)
	return fmt.Sprintf("server %s %s port %s", name, p.addr, port)
}

// restart ends the proxy, and starts it again at the same addresses.
func (p *restartable) restart(t *testing.T, upstream string) {
	t.Helper()
	p.end(t)
	var last struct {
		Message string `json:"msg"`
		Cut     int    `json:"clients_cut"`
		Locks   int    `json:"locks_left"`
	}
	lines := strings.Split(tail(p.log), "\n")
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &last); err != nil || last.Message != "stopped" {
		t.Errorf("the last entry of the log: %v %+v", err, last)
	}
	if last.Cut > 1 || last.Locks > 1 { // the holder
		t.Errorf("%d clients were cut off, %d locks were left", last.Cut, last.Locks)
	}
	p.start(t, upstream)
	redistest.Eventually(t, 10*time.Second, "the proxy to be ready", func() bool {
		return strings.HasPrefix(ask(p.admin, "GET /readyz HTTP/1.0\r\n"), "HTTP/1.0 200")
	})
}
