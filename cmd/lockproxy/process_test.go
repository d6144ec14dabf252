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

// The health check finds its way to every kind of listener.
func TestHealthOfEveryKindOfListener(t *testing.T) {
	a := redistest.NewAuthority(t)
	redis := redistest.Start(t)
	cert, key := a.Issue(t, "proxy")
	for _, listener := range []string{"127.0.0.1:0", "tls:127.0.0.1:0"} {
		for _, header := range []string{"off", "optional", "required"} {
			args := []string{"--proxy-protocol", header, "--tls-cert-file", cert, "--tls-key-file", key, "--tls-ca-file", a.File(), "--upstream", redis.Addr()}
			p := startProcess(t, append(args, "--listen", listener)...)
			addr := p.addr("")
			if strings.HasPrefix(listener, tlsPrefix) {
				addr = tlsPrefix + addr
			}
			p.awaitLog(1, "connected to upstream")
			var out strings.Builder
			if code := run(t.Context(), append(args, "--health", "--listen", addr), &out, &out); code != exitOK {
				t.Errorf("%s, PROXY header %s: %s", listener, header, &out)
			}
		}
	}
}

func TestCheckLoadsCertificates(t *testing.T) {
	a := redistest.NewAuthority(t)
	cert, key := a.Issue(t, "proxy")
	_, otherKey := a.Issue(t, "other")
	for keyFile, want := range map[string]int{key: exitOK, otherKey: exitUsage, "absent.key": exitUsage} {
		var out strings.Builder
		args := []string{"--check", "--listen", "tls:127.0.0.1:0", "--tls-auth-clients", "no", "--tls-cert-file", cert, "--tls-key-file", keyFile}
		if code := run(t.Context(), args, &out, &out); code != want {
			t.Errorf("%s: exit code %d, want %d: %s", keyFile, code, want, &out)
		}
	}
}

func TestAdminServerEndsWhenNoMoreClientsAreAccepted(t *testing.T) {
	redis := redistest.Start(t)
	p := startProcess(t, "--listen", "127.0.0.1:0", "--admin-listen", ":0", "--upstream", redis.Addr(), "--drain-delay", "3s", "--drain-timeout", "20s")
	admin := "http://" + p.addr(`"logger":"admin"`)
	var addr string
	redistest.Eventually(t, 20*time.Second, "the log to have the address for clients", func() bool {
		for line := range strings.SplitSeq(p.log.String(), "\n") {
			if strings.Contains(line, `"msg":"listening"`) && !strings.Contains(line, "admin") {
				_, after, _ := strings.Cut(line, `"addr":"`)
				addr, _, _ = strings.Cut(after, `"`)
			}
		}
		return addr != ""
	})
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	if _, err := io.WriteString(nc, "LOCK held\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := bufio.NewReader(nc).ReadString('\n'); err != nil {
		t.Fatal(err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}, Timeout: 20 * time.Second}
	get := func(path string) (int, string) {
		answer, err := client.Get(admin + path)
		if err != nil {
			t.Fatal(err)
		}
		defer answer.Body.Close()
		b, err := io.ReadAll(answer.Body)
		if err != nil {
			t.Fatal(err)
		}
		return answer.StatusCode, string(b)
	}
	if status, body := get("/readyz"); status != http.StatusOK {
		t.Errorf("readyz: %d %s", status, body)
	}
	if _, body := get("/metrics"); !strings.Contains(body, "\nlockproxy_locks_held{mode=\"exclusive\"} 1\n") {
		t.Error("the lock is not in the metrics")
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	redistest.Eventually(t, 20*time.Second, "readyz to say that it drains", func() bool {
		status, body := get("/readyz")
		return status == http.StatusServiceUnavailable && body == "draining\n"
	})
	if _, body := get("/clients"); !strings.Contains(body, `"draining":true`) {
		t.Error("the page does not say that it drains")
	}
	redistest.Eventually(t, 20*time.Second, "the port for operators to be given up", func() bool {
		c, err := net.Dial("tcp", strings.TrimPrefix(admin, "http://"))
		if err == nil {
			c.Close()
		}
		return err != nil
	})
	if strings.Contains(p.log.String(), `"msg":"stopped"`) {
		t.Error("the holder has not been waited for")
	}
	nc.Close() // and with it the drain ends
	p.awaitEnd()
}

// held starts a process with clients that hold two locks, one of them with GRACE 0. The drain waits for them.
func held(t *testing.T, redis *redistest.Server) (p *process, holder net.Conn) {
	t.Helper()
	p = startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(), "--drain-timeout", "10m")
	holder, err := net.Dial("tcp", p.addr(""))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { holder.Close() })
	replies := bufio.NewReader(holder)
	for _, command := range []string{"LOCK stays PX 600000\r\n", "LOCK goes GRACE 0\r\n"} {
		if _, err := io.WriteString(holder, command); err != nil {
			t.Fatal(err)
		}
		if line, err := replies.ReadString('\n'); err != nil || !strings.HasPrefix(line, ":") {
			t.Fatalf("%s is answered %q, %v", command, line, err)
		}
	}
	return p, holder
}

// signalUntil sends signals until the log has these words. One that has counted makes those within a second no others.
func (p *process) signalUntil(words string) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, "the log to have "+words, func() bool {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may have ended
		return strings.Contains(p.log.String(), words)
	})
}

func TestASecondSignalEndsTheWaitingAndCleansUp(t *testing.T) {
	redis := redistest.Start(t)
	p, _ := held(t, redis)
	p.signalUntil("second signal")
	p.awaitEnd()
	if line := p.awaitLog(1, `"msg":"stopped"`); !strings.Contains(line, `"clients_cut":1,"locks_left":2`) {
		t.Error(line)
	}
	if n := redis.Do(t, "EXISTS", "goes"); n != int64(0) {
		t.Error("the lock with GRACE 0 is left")
	}
	if n := redis.Do(t, "EXISTS", "stays"); n != int64(1) {
		t.Error("the lock without GRACE has ended")
	}
}

// The next process of one configuration starts while the first one drains: it takes the addresses over, that for
// operators as well, and no client is refused in between. Without a signal, a second process is refused.
func TestProcessesOfOneConfigurationOverlap(t *testing.T) {
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

func TestHangupReloadsTheConfiguration(t *testing.T) {
	redis := redistest.Start(t)
	file := writeFile(t, "lock:\n  lease: 30s\n")
	p := startProcess(t, "--config", file, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(), "--max-waiters", "7")
	nc, err := net.Dial("tcp", p.addr(""))
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	in := bufio.NewReader(nc)
	lease := func(key string) time.Duration {
		t.Helper()
		if _, err := io.WriteString(nc, "LOCK "+key+"\r\n"); err != nil {
			t.Fatal(err)
		}
		if line, err := in.ReadString('\n'); err != nil || line[0] != ':' {
			t.Fatalf("LOCK: %q, %v", line, err)
		}
		ms, _ := redis.Do(t, "PTTL", key).(int64)
		return time.Duration(ms) * time.Millisecond
	}
	reload := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
	}
	if got := lease("a"); got > 30*time.Second {
		t.Errorf("the first lease is %s", got)
	}
	reload("lock:\n  lease: 50s\nlog:\n  level: debug\nfailover-wait: 3s\nmax-waiters: 9\n") // a flag wins over max-waiters
	p.awaitLog(1, `"msg":"reloaded"`, `"changed":["lock.lease: from 30s to 50s","log.level: from info to debug"]`)
	p.awaitLog(1, "change with a restart only", `"settings":["failover-wait: 2s, not 3s"]`)
	if got := lease("b"); got < 31*time.Second {
		t.Errorf("the lease after the reload is %s", got)
	}
	for n, bad := range []string{"lock:\n  lease: 1ms\n", "lock:\n  leese: 3s\n", "lock: ["} {
		reload(bad)
		p.awaitLog(n+1, "configuration not reloaded, nothing has changed", "lock")
	}
	if got := lease("c"); got < 31*time.Second {
		t.Errorf("the lease after a bad reload is %s", got)
	}
	ping(t, nc)
}

// The clients need a pin each: the limit of the moment says how many of them Redis serves.
func TestHangupReloadsPins(t *testing.T) {
	file := writeFile(t, "max-pins: 1\n")
	p := startProcess(t, "--config", file, "--listen", "127.0.0.1:0", "--upstream", redistest.Start(t).Addr())
	reload := func(text, changed string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := p.cmd.Process.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		p.awaitLog(1, "reloaded", changed)
	}
	addr := p.addr("")
	pin := func() (answer string) {
		t.Helper()
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { nc.Close() })
		return askLine(t, nc, "SUBSCRIBE c")
	}
	if got := pin(); got != "*3\r\n" {
		t.Errorf("the first pin: %q", got)
	}
	if got := pin(); !strings.HasPrefix(got, "-OVERLOADED") {
		t.Errorf("a pin beyond max-pins: %q", got)
	}
	reload("max-pins: 2\nmax-waiters: 7\n", `"changed":["max-pins: from 1 to 2","max-waiters: from 100000 to 7"]`)
	if got := pin(); got != "*3\r\n" {
		t.Errorf("a second pin when max-pins has grown: %q", got)
	}
	if got := pin(); !strings.HasPrefix(got, "-OVERLOADED") {
		t.Errorf("a pin beyond the new max-pins: %q", got)
	}
	reload("max-pins: 1\nmax-clients: 1000000000\n", "not reloaded, nothing has changed")
}

// A proxy may start before its Redis.
func TestRedisMayAppearAfterTheStart(t *testing.T) {
	redis := redistest.Start(t)
	redis.Stop()
	p := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(), "--failover-wait", "100ms")
	addr := p.addr("")
	answer := func(line string) string {
		nc, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer nc.Close()
		_ = nc.SetDeadline(time.Now().Add(10 * time.Second))
		_, _ = nc.Write([]byte(line + "\r\n"))
		reply, err := bufio.NewReader(nc).ReadString('\n')
		if errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: neither a reply nor the end", line)
		}
		return reply
	}
	for _, line := range []string{"GET x", "LOCK a", "FAIRLOCK a WAIT 1000", "UNLOCK a", "LOCKINFO a"} {
		if got := answer(line); got != "" {
			t.Errorf("%s without Redis: %q", line, got)
		}
	}
	redis.Restart()
	redistest.Eventually(t, 20*time.Second, "a lock", func() bool { return strings.HasPrefix(answer("LOCK a"), ":") })
}
