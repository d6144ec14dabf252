package main

import (
	"bufio"
	"io"
	"net"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// logged is a process whose log goes to a pipe.
type logged struct {
	*process

	reader *os.File
	lines  *bufio.Scanner
	addr   string
}

// startLogged starts a proxy, and reads its log up to its address.
func startLogged(t *testing.T, args ...string) *logged {
	t.Helper()
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { reader.Close() })
	defer writer.Close()
	p := &logged{process: &process{t: t, log: &logBuffer{}}, reader: reader, lines: bufio.NewScanner(reader)}
	p.cmd = program(t, args...)
	p.cmd.Stderr = writer
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		_ = p.cmd.Wait()
	})
	for p.lines.Scan() {
		if _, after, ok := strings.Cut(p.lines.Text(), `"msg":"listening","addr":"`); ok {
			p.addr, _, _ = strings.Cut(after, `"`)
			return p
		}
	}
	t.Fatal("the proxy does not listen")
	return nil
}

// program is a command that runs this test binary as lockproxy.
func program(t *testing.T, args ...string) *exec.Cmd {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"lockproxy"}, args...)
	return cmd
}

// number is a number of INFO lockproxy, of a line with several.
func (p *logged) number(line, label string) int {
	p.t.Helper()
	nc := mustDial(p.t, p.addr)
	defer nc.Close()
	if _, err := io.WriteString(nc, "INFO lockproxy\r\n"); err != nil {
		p.t.Fatal(err)
	}
	in := bufio.NewReader(nc)
	for {
		text, err := in.ReadString('\n')
		if err != nil {
			p.t.Fatalf("INFO lockproxy: %v", err)
		}
		if values, ok := strings.CutPrefix(strings.TrimSpace(text), line+":"); ok {
			_, value, _ := strings.Cut(","+values, ","+label+"=")
			value, _, _ = strings.Cut(value, ",")
			n, err := strconv.Atoi(value)
			if err != nil {
				p.t.Fatal(text)
			}
			return n
		}
	}
}

// dropped is the number of entries that were dropped.
func (p *logged) dropped() int { return p.number("log_entries_dropped", "audit") }

// flood makes entries until some were dropped: one for each lock that is ended by force.
func (p *logged) flood() {
	p.t.Helper()
	nc := mustDial(p.t, p.addr)
	in := bufio.NewReader(nc)
	redistest.Eventually(p.t, 60*time.Second, "entries to be dropped", func() bool {
		const crowd = 500
		if _, err := io.WriteString(nc, strings.Repeat("LOCK forced PX 60000\r\nFORCEUNLOCK forced\r\n", crowd)); err != nil {
			p.t.Fatal(err)
		}
		for range 2 * crowd {
			if line, err := in.ReadString('\n'); err != nil || line[0] != ':' {
				p.t.Fatalf("%q, %v", line, err)
			}
		}
		return p.dropped() > 0
	})
}

// keeps holds a lock for more than one lease.
func (p *logged) keeps(redis *redistest.Server, key string) {
	p.t.Helper()
	redistest.Eventually(p.t, 20*time.Second, "the lock to be renewed", func() bool {
		if redis.Do(p.t, "EXISTS", key) != int64(1) {
			p.t.Fatal("the lock is lost")
		}
		return p.number("lock_renewals", "done") >= 5
	})
}

// end ends the proxy, which drains and has exit code 0.
func (p *logged) end(redis *redistest.Server) {
	p.t.Helper()
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		p.t.Fatal(err)
	}
	p.awaitEnd()
	if redis.Do(p.t, "EXISTS", "held") != int64(0) {
		p.t.Error("the proxy has ended without the drain, in which GRACE 0 ends the lock")
	}
}

// The reader of the log goes: journald restarts, or another program at the end of a pipe ends.
func TestAProxyOutlivesTheReaderOfItsLog(t *testing.T) {
	redis := redistest.Start(t)
	p := startLogged(t, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(),
		"--lock-lease", "1s", "--drain-timeout", "10ms")
	if fence := dialAsk(t, p.addr, "LOCK held GRACE 0"); fence[0] != ':' {
		t.Fatal(fence)
	}
	p.reader.Close()
	p.flood()
	p.keeps(redis, "held")
	p.end(redis)
}

// The reader stands still: the pipe is full.
func TestAProxyDoesNotWaitForTheReaderOfItsLog(t *testing.T) {
	redis := redistest.Start(t)
	p := startLogged(t, "--listen", "127.0.0.1:0", "--upstream", redis.Addr(),
		"--lock-lease", "1s", "--drain-timeout", "10ms")
	if fence := dialAsk(t, p.addr, "LOCK held GRACE 0"); fence[0] != ':' {
		t.Fatal(fence)
	}
	p.flood()
	p.keeps(redis, "held")
	p.end(redis)
}

// mustDial connects a client that waits for each answer for a bounded time.
func mustDial(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	if err := nc.SetDeadline(time.Now().Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	return nc
}

// A fatal entry ends the process, also if it cannot be written.
func TestAFatalEntryIsNotWaitedForToTheEnd(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	cmd := program(t)
	cmd.Args[0], cmd.Stderr = "fatal", writer
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	writer.Close()
	timer := time.AfterFunc(20*time.Second, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	if err := cmd.Wait(); cmd.ProcessState.ExitCode() != exitFailure {
		t.Error(err)
	}
	if text, err := io.ReadAll(reader); err != nil || !strings.Contains(string(text), "entry") {
		t.Errorf("the log is %d bytes, %v", len(text), err)
	}
}

// fatal is a program that ends with more entries than its reader takes.
func fatal() {
	log, _, _ := newLogger(LogConfig{Level: "info"}, os.Stderr)
	for range 2000 {
		log.Info("entry")
	}
	log.Fatal("the end")
}
