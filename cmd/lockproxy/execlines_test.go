package main

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// locks is a proxy in front of a Redis, with the directory of the test's commands. The file "wait" there is a pipe.
type locks struct {
	t     *testing.T
	redis *redistest.Server
	proxy *process
	addr  string
	dir   string
}

func newLocks(t *testing.T) *locks {
	t.Helper()
	l := &locks{t: t, redis: redistest.Start(t), dir: t.TempDir()}
	if err := syscall.Mkfifo(filepath.Join(l.dir, "wait"), 0o600); err != nil {
		t.Fatal(err)
	}
	l.proxy = startProcess(t, "--listen", "127.0.0.1:0", "--upstream", l.redis.Addr())
	l.addr = l.proxy.addr("")
	l.proxy.awaitLog(1, "connected to upstream")
	return l
}

// start runs lockproxy exec. ended waits for it, and returns its exit code and output.
func (l *locks) start(args ...string) (ended func() (code int, out string)) {
	l.t.Helper()
	cmd, out := exec.Command("lockproxy", append([]string{"exec"}, args...)...), &logBuffer{}
	cmd.Dir, cmd.Stdout, cmd.Stderr = l.dir, out, out
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		l.t.Fatal(err)
	}
	l.t.Cleanup(p.Kill)
	return func() (int, string) { return p.Exit(l.t, patience), out.String() }
}

// wrote waits until the command has written a file, and returns its text.
func (l *locks) wrote(name string) string {
	l.t.Helper()
	var text []byte
	redistest.Eventually(l.t, patience, "the file "+name, func() bool {
		text, _ = os.ReadFile(filepath.Join(l.dir, name))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// free waits until nobody has the lock.
func (l *locks) free(key string) {
	l.t.Helper()
	redistest.Eventually(l.t, patience, key+" to be free", func() bool { return l.redis.Do(l.t, "EXISTS", key) == int64(0) })
}

// A connection may break before a command of exec, or between it and its answer. The command runs once, under one grant,
// and the lock is free behind it.
func TestExecOutlivesTheLossOfAnAnswer(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	line := redistest.StartRelay(t, l.addr)
	run := 0
	for _, kind := range [][]string{nil, {"--fair"}, {"-s"}, {"--limit", "2"}} {
		for _, verb := range []string{"LOCK", "EXTENDLOCK", "UNLOCK"} {
			for _, heard := range []redistest.Fate{redistest.Unheard, redistest.Heard} {
				if verb == "LOCK" && kind != nil && kind[0] == "--fair" {
					verb = "FAIRLOCK"
				}
				run++
				key, ran := fmt.Sprint("job", run), fmt.Sprint("ran", run)
				line.CutAt("\r\n"+verb+"\r\n", heard)
				args := append([]string{"-u", line.Addr(), "--lease", "3s"}, kind...)
				if code, out := l.start(append(args, key, "--", "sh", "-c", "echo ran >> "+ran)...)(); code != 0 {
					t.Errorf("%v, %s, heard %d: exit code %d, %s", kind, verb, heard, code, out)
				}
				if got := l.wrote(ran); got != "ran" {
					t.Errorf("%v, %s, heard %d: the command has run as %q", kind, verb, heard, got)
				}
				if line.Cuts() {
					t.Errorf("%v, %s, heard %d: no connection was cut", kind, verb, heard)
				}
				l.free(key)
			}
		}
	}
}

// The connection of the proxy to Redis may break likewise: then the proxy closes that of exec, which connects again and
// goes on by its OWNER. The command runs once, and the lock is free behind it.
func TestExecOutlivesTheLossOfAnAnswerOfRedis(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	link := redistest.StartRelay(t, l.redis.Addr())
	p := startProcess(t, "--listen", "127.0.0.1:0", "--upstream", link.Addr())
	p.awaitLog(1, "connected to upstream")
	run := 0
	for _, kind := range [][]string{nil, {"--fair"}, {"-s"}, {"--limit", "2"}} {
		for _, at := range []string{"LOCK", "EXTENDLOCK", "UNLOCK"} {
			for _, fate := range []redistest.Fate{redistest.Unheard, redistest.Heard} {
				run++
				key, ran := fmt.Sprint("job", run), fmt.Sprint("ran", run)
				lease := "60s"
				if at == "EXTENDLOCK" {
					lease = "3s"
				}
				if at == "LOCK" {
					link.CutAt(key, fate)
				}
				args := append([]string{"-u", p.addr(""), "--lease", lease}, kind...)
				ended := l.start(append(args, key, "--", "sh", "-c", "echo ran >> "+ran+"; read go < wait")...)
				if got := l.wrote(ran); got != "ran" {
					t.Errorf("%v, %s: the command has run as %q", kind, at, got)
				}
				if at != "LOCK" {
					link.CutAt(key, fate) // of the next call, which is that one
				}
				if at == "EXTENDLOCK" {
					redistest.Eventually(t, 20*time.Second, "the cut", func() bool { return !link.Cuts() })
				}
				redistest.Eventually(t, patience, "the command to read", func() bool {
					fed, err := feed(filepath.Join(l.dir, "wait"))
					return fed && err == nil
				})
				if code, out := ended(); code != 0 {
					t.Errorf("%v, %s: exit code %d, %s", kind, at, code, out)
				}
				if link.Cuts() {
					t.Errorf("%v, %s: no connection was cut", kind, at)
				}
				if got := l.wrote(ran); got != "ran" {
					t.Errorf("%v, %s: the command has run as %q", kind, at, got)
				}
				l.free(key)
			}
		}
	}
}

// Connections are cut at random, by a middleman and by CLIENT KILL, and the proxy is restarted: exec keeps its lock or says
// that it is lost, and no two commands run at the same time.
func TestExecOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("no flock(1)")
	}
	l := newLocks(t)
	line := redistest.StartRelay(t, l.addr)
	proxy := l.proxy
	const command = `flock -n file sh -c 'echo run >> runs; for i in 1 2 3 4 5; do sleep 0.1; done' || echo overlap >> overlaps`
	ended := make(chan int)
	for range 3 {
		go func() {
			for range 3 {
				cmd := exec.Command("lockproxy", "exec", "-u", line.Addr(), "--lease", "2s", "job", "--", "sh", "-c", command)
				cmd.Dir = l.dir
				out, _ := cmd.CombinedOutput()
				code := cmd.ProcessState.ExitCode()
				said := func(word string) bool { return strings.Contains(string(out), word) }
				switch {
				case code == 0:
				case code == cli.ExitLost && (said("lost") || said("confirm")):
				case code == cli.ExitUnreachable && said("cannot be reached"): // its first connection was cut
				default:
					t.Errorf("exit code %d: %s", code, out)
				}
				ended <- code
			}
		}()
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	for i, left, good := 0, 9, 0; left > 0; {
		select {
		case code := <-ended:
			left--
			if code == 0 {
				good++
			}
			if left == 0 && good == 0 {
				t.Error("no command has kept its lock")
			}
		case <-pause.C:
			i++
			switch {
			case i%40 == 0:
				proxy.cmd.Process.Kill()
				proxy.once.Do(func() { _ = proxy.cmd.Wait() })
				proxy = startProcess(t, "--listen", l.addr, "--upstream", l.redis.Addr())
				proxy.awaitLog(1, "connected to upstream")
			case i%3 == 0:
				redistest.Talk(t, l.addr, "CLIENT KILL SKIPME yes")
			default:
				line.Reset()
			}
			pause.Reset(time.Duration(20+rand.IntN(150)) * time.Millisecond)
		}
	}
	if got, err := os.ReadFile(filepath.Join(l.dir, "overlaps")); err == nil {
		t.Errorf("two commands have run at the same time: %s", got)
	}
	l.free("job")
}
