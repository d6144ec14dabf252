package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// runProxy runs a proxy until the test ends, or until it is killed.
func runProxy(t *testing.T, addr, upstream string) *redistest.Process {
	t.Helper()
	cmd := exec.Command("lockproxy", "--listen", addr, "--upstream", upstream, "--drain-timeout", "10ms")
	log := &logBuffer{}
	cmd.Stderr = log
	p, err := redistest.StartProcess(cmd)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		p.Kill()
		if t.Failed() {
			t.Log(log)
		}
	})
	redistest.Eventually(t, patience, "the proxy to be connected", func() bool { return strings.Contains(log.String(), "connected to upstream") })
	return p
}

// lined is a proxy behind a line that tests cut.
func lined(t *testing.T) (redis *redistest.Server, proxy *redistest.Process, addr string, line *redistest.Relay) {
	t.Helper()
	redis, addr = redistest.Start(t), fmt.Sprint("127.0.0.1:", redistest.Port(t))
	proxy = runProxy(t, addr, redis.Addr())
	return redis, proxy, addr, redistest.StartRelay(t, addr)
}

// A connection may break before a command of exec, or between it and its answer. The command runs once, under one grant,
// and the lock is free behind it.
func TestExecOutlivesTheLossOfAnAnswer(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"--lease=3s", "--fair", "--shared", "--limit=2"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			redis, _, _, line := lined(t)
			for i, verb := range []string{"LOCK", "EXTENDLOCK", "UNLOCK"} {
				if kind == "--fair" && i == 0 {
					verb = "FAIRLOCK"
				}
				for _, heard := range []redistest.Fate{redistest.Unheard, redistest.Heard} {
					line.CutAt("\r\n"+verb+"\r\n", heard)
					out, err := exec.Command("lockproxy", "exec", "-u", line.Addr(), "--lease=3s", kind, "job", "--", "echo", "ran").CombinedOutput()
					if err != nil || string(out) != "ran\n" || line.Cuts() {
						t.Errorf("%s, heard %d: %v, %q; nothing was cut: %v", verb, heard, err, out, line.Cuts())
					}
					redistest.Eventually(t, patience, "the lock to be free", func() bool { return redis.Do(t, "EXISTS", "job") == int64(0) })
				}
			}
		})
	}
}

// Connections are cut at random, by a middleman and by CLIENT KILL, and the proxy is restarted: exec keeps its lock or says
// that it is lost, and no two commands run at the same time.
func TestExecOutlivesItsConnections(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("flock"); err != nil {
		t.Skip("no flock(1)")
	}
	redis, proxy, addr, line := lined(t)
	dir := t.TempDir()
	const command = `flock -n file sh -c 'echo run >> runs; for i in 1 2 3 4 5; do sleep 0.1; done' || echo overlap >> overlaps`
	ended := make(chan int, 9)
	for range 3 {
		go func() {
			for range 3 {
				cmd := exec.Command("lockproxy", "exec", "-u", line.Addr(), "--lease", "2s", "job", "--", "sh", "-c", command)
				cmd.Dir = dir
				out, _ := cmd.CombinedOutput()
				code := cmd.ProcessState.ExitCode()
				if code != 0 && code != cli.ExitLost && code != cli.ExitUnreachable { // or the command was not started
					t.Errorf("exit code %d: %s", code, out)
				}
				ended <- code
			}
		}()
	}
	pause := time.NewTimer(0)
	defer pause.Stop()
	late := time.After(3 * time.Minute)
	for i, left, good := 0, cap(ended), 0; left > 0; {
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
			case i%10 == 0:
				proxy.Kill()
				proxy = runProxy(t, addr, redis.Addr())
			case i%3 == 0:
				redistest.Talk(t, addr, "CLIENT KILL SKIPME yes")
			default:
				line.Reset()
			}
			pause.Reset(time.Duration(100+rand.IntN(400)) * time.Millisecond)
		case <-late:
			t.Fatal("the commands do not end")
		}
	}
	if got, err := os.ReadFile(filepath.Join(dir, "overlaps")); err == nil {
		t.Errorf("two commands have run at the same time: %s", got)
	}
	redistest.Eventually(t, patience, "the lock to be free", func() bool { return redis.Do(t, "EXISTS", "job") == int64(0) })
}
