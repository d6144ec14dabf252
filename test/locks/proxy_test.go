package locks

import (
	"bufio"
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// patience bounds what should happen at once, on a machine that is busy with other tests.
const patience = 15 * time.Second

// startProcess starts the command, inside a network namespace if one is named.
func startProcess(netns string, cmd *exec.Cmd) (*redistest.Process, error) {
	if netns != "" {
		inside := exec.Command("ip", append([]string{"netns", "exec", netns, cmd.Path}, cmd.Args[1:]...)...)
		inside.Env, inside.Dir, inside.Stdin, inside.Stdout, inside.Stderr = cmd.Env, cmd.Dir, cmd.Stdin, cmd.Stdout, cmd.Stderr
		cmd = inside
	}
	return redistest.StartProcess(cmd)
}

// proxy is one lockproxy process, or the place of one that is down.
type proxy struct {
	*redistest.Process
	addr  string
	args  []string
	netns string
	log   string // file; survives a restart
	bin   string
}

func newProxyAt(t testing.TB, netns, addr, upstream string, flags ...string) *proxy {
	t.Helper()
	p := &proxy{
		addr: addr, netns: netns, bin: program(t), log: filepath.Join(t.TempDir(), "lockproxy.log"),
		args: append([]string{"--listen", addr, "--upstream", upstream}, flags...),
	}
	t.Cleanup(func() { p.cleanup(t) })
	return p
}

// start runs the process; it does not wait for it to serve.
func (p *proxy) start() error {
	file, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	cmd := exec.Command(p.bin, p.args...)
	cmd.Stderr = file
	// A race must not end the process before its log is read; it is found there.
	cmd.Env = append(os.Environ(), "GORACE=halt_on_error=0")
	p.Process, err = startProcess(p.netns, cmd)
	return err
}

// cleanup kills the process and fails the test if its log speaks of a bug.
func (p *proxy) cleanup(t testing.TB) {
	if p.Process != nil {
		p.Kill()
	}
	for _, line := range p.complaints() {
		t.Errorf("the proxy's log: %s", line)
	}
	if t.Failed() {
		whole := filepath.Join(t.ArtifactDir(), strings.ReplaceAll(p.addr, ":", "-")+".log")
		if b, err := os.ReadFile(p.log); err == nil {
			_ = os.WriteFile(whole, b, 0o600)
		}
		t.Logf("end of the log of the proxy at %s (all of it, kept with -artifacts: %s):\n%s", p.addr, whole, p.tail())
	}
}

// complaints are the lines of the log that must never appear.
func (p *proxy) complaints() (lines []string) {
	file, err := os.Open(p.log)
	if err != nil {
		return nil
	}
	defer file.Close()
	scan := bufio.NewScanner(file)
	scan.Buffer(nil, 1<<20)
	for scan.Scan() {
		line := scan.Text()
		for _, bad := range []string{"panic", "BUG:", "DATA RACE", "fatal error"} {
			if strings.Contains(line, bad) && len(lines) < 10 {
				lines = append(lines, line)
			}
		}
	}
	return lines
}

// tail returns the last 4 KiB of the log.
func (p *proxy) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(bytes.TrimSpace(b[max(0, len(b)-4096):]))
}

// freeAddr is an address that stays free while the process that listens on it is down.
func freeAddr(t testing.TB) string {
	t.Helper()
	return "127.0.0.1:" + strconv.Itoa(redistest.Port(t))
}
