package main

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"errors"
	"io"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// process is the program, running.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  *logBuffer
	once sync.Once
}

// logBuffer collects what a process writes.
type logBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *logBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// startProcess runs the program until the test ends: this test binary, which is lockproxy if it is called that.
func startProcess(t *testing.T, args ...string) *process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	p := &process{t: t, cmd: exec.Command(self), log: &logBuffer{}}
	p.cmd.Args = append([]string{"lockproxy", "--drain-timeout", "10ms"}, args...)
	p.cmd.Stderr = p.log
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		p.awaitEnd()
		if t.Failed() {
			t.Log(p.log)
		}
	})
	return p
}

// awaitEnd expects the process to end well.
func (p *process) awaitEnd() {
	p.once.Do(func() {
		if err := p.cmd.Wait(); err != nil {
			p.t.Errorf("the process ended with %v", err)
		}
	})
}

// awaitLog waits until the process has logged all words on one line, n times, and returns the last such line.
func (p *process) awaitLog(n int, words ...string) (line string) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, "the log to have "+strings.Join(words, " "), func() bool {
		found := 0
		for l := range strings.SplitSeq(p.log.String(), "\n") {
			all := true
			for _, word := range words {
				all = all && strings.Contains(l, word)
			}
			if all {
				found, line = found+1, l
			}
		}
		return found >= n
	})
	return line
}

// addr is where the process listens: on a port that it has chosen.
func (p *process) addr(logger string) string {
	p.t.Helper()
	line := p.awaitLog(1, `"msg":"listening"`, logger)
	_, after, _ := strings.Cut(line, `"addr":"`)
	addr, _, _ := strings.Cut(after, `"`)
	return addr
}

// dialTLS connects and returns the serial number of the certificate that is shown.
func dialTLS(t *testing.T, addr string, cfg *tls.Config) (*tls.Conn, *big.Int) {
	t.Helper()
	nc, err := tls.DialWithDialer(&net.Dialer{Timeout: 20 * time.Second}, "tcp", addr, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
		t.Fatal(err)
	}
	return nc, nc.ConnectionState().PeerCertificates[0].SerialNumber
}

// ping expects a PONG.
func ping(t *testing.T, nc net.Conn) {
	t.Helper()
	if _, err := io.WriteString(nc, "PING\r\n"); err != nil {
		t.Fatal(err)
	}
	if line, err := bufio.NewReader(nc).ReadString('\n'); line != "+PONG\r\n" {
		t.Fatalf("PING was answered %q, %v", line, err)
	}
}

func TestHangupReloadsCertificatesAndDropsNobody(t *testing.T) {
	t.Parallel()
	a := redistest.NewAuthority(t)
	_, redisAddr := redistest.StartTLS(t, a)
	cert, key := a.Issue(t, "proxy")
	upstreamCert, upstreamKey := a.Issue(t, "upstream")
	p := startProcess(t, "--listen", "tls:127.0.0.1:0", "--tls-cert-file", cert, "--tls-key-file", key, "--tls-auth-clients", "no",
		"--upstream", redisAddr, "--upstream-tls", "--upstream-ca-file", a.File(), "--upstream-cert-file", upstreamCert, "--upstream-key-file", upstreamKey)
	addr := p.addr("")
	cfg := &tls.Config{RootCAs: a.Pool(), ServerName: "localhost"}
	old, oldSerial := dialTLS(t, addr, cfg)
	ping(t, old)

	a.Issue(t, "proxy") // replaces the files
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.awaitLog(1, `"msg":"reloaded"`)
	renewed, newSerial := dialTLS(t, addr, cfg)
	if newSerial.Cmp(oldSerial) == 0 {
		t.Error("a new client was shown the old certificate")
	}
	ping(t, renewed)
	ping(t, old)

	if err := os.WriteFile(key, []byte("not a key"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	p.awaitLog(1, "certificates not reloaded", key)
	third, serial := dialTLS(t, addr, cfg)
	if serial.Cmp(newSerial) != 0 {
		t.Error("a failed reload changed the certificate")
	}
	ping(t, third)
	ping(t, old)
}

// The next process of one configuration starts while the first one drains: it takes the addresses over, that for
// operators as well, and no client is refused in between. Without a signal, a second process is refused.
func TestProcessesOfOneConfigurationOverlap(t *testing.T) {
	t.Parallel()
	if runtime.GOOS != "linux" {
		t.Skip("no ports are shared here")
	}
	redis := redistest.Start(t)
	var ports []string
	for range 2 {
		ports = append(ports, net.JoinHostPort("127.0.0.1", strconv.Itoa(redistest.Port(t))))
	}
	dir, err := os.MkdirTemp("", "lp")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "s")
	args := []string{"--listen", ports[0], "--listen", "unix:" + socket, "--admin-listen", ports[1], "--upstream", redis.Addr(), "--drain-delay", "2s", "--drain-timeout", "1s"}
	first := startProcess(t, args...)
	first.addr(`"logger":"admin"`) // it listens
	holder, err := net.Dial("tcp", ports[0])
	if err != nil {
		t.Fatal(err)
	}
	fence := askLine(t, holder, "LOCK held OWNER job")
	if !strings.HasPrefix(fence, ":") {
		t.Fatal(fence)
	}
	var refused bytes.Buffer
	if code := run(t.Context(), args, io.Discard, &refused); code != exitFailure || !strings.Contains(refused.String(), "address already in use") {
		t.Fatalf("exit code %d: %s", code, &refused)
	}

	if err := first.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 20*time.Second, "the first process to drain", func() bool { return strings.Contains(first.log.String(), `"msg":"draining"`) })
	second := startProcess(t, args...)
	second.addr(`"logger":"admin"`)
	resets := 0
	for stopped := time.Now().Add(2500 * time.Millisecond); time.Now().Before(stopped); { // while the first one closes its listeners
		nc, err := net.Dial("tcp", ports[0])
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.WriteString(nc, "PING\r\n")
		line := make([]byte, len("+PONG\r\n"))
		if err == nil {
			_, err = io.ReadFull(nc, line)
		}
		nc.Close()
		if errors.Is(err, syscall.ECONNRESET) { // connected by the system between the last look at the queue and its end
			if resets++; resets > 1 {
				t.Fatal("two clients are reset")
			}
		} else if err != nil || string(line) != "+PONG\r\n" {
			t.Fatalf("PING: %q, %v", line, err)
		}
	}
	if got := dialAsk(t, ports[0], "LOCK held OWNER job"); got != fence {
		t.Errorf("the owner has fence %q at the first process, %q at the second", fence, got)
	}
	holder.Close()
	first.awaitEnd()
	if nc, err := net.Dial("unix", socket); err != nil {
		t.Error(err)
	} else {
		nc.Close()
	}
	answer, err := http.Get("http://" + ports[1] + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		t.Errorf("/readyz of the second process: %s", answer.Status)
	}
	if err := second.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	second.awaitEnd()
}

// askLine sends a command, and returns the first line of the reply.
func askLine(t *testing.T, nc net.Conn, command string) string {
	t.Helper()
	if _, err := io.WriteString(nc, command+"\r\n"); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(nc).ReadString('\n')
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return line
}

// dialAsk connects a client that stays until the test ends, and sends a command.
func dialAsk(t *testing.T, addr, command string) string {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return askLine(t, nc, command)
}
