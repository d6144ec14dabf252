package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/cli"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// holding is a running lockproxy exec.
type holding struct {
	t   *testing.T
	cmd *exec.Cmd
	out logBuffer // of both
	end chan int  // the exit code
}

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

// program is the program as a user starts it, in the test's directory.
func (l *locks) program(args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		l.t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Args = append([]string{"lockproxy"}, args...)
	cmd.Env, cmd.Dir = append(os.Environ(), "LOCKPROXY_URL=redis://"+l.addr), l.dir
	return cmd
}

// start runs lockproxy exec.
func (l *locks) start(args ...string) *holding {
	l.t.Helper()
	return l.begin(nil, args...)
}

// begin is start with another file for standard error.
func (l *locks) begin(stderr *os.File, args ...string) *holding {
	l.t.Helper()
	h := &holding{t: l.t, cmd: l.program(append([]string{"exec"}, args...)...), end: make(chan int, 1)}
	h.cmd.Stdout, h.cmd.Stderr = &h.out, &h.out
	if stderr != nil {
		h.cmd.Stderr = stderr
	}
	h.cmd.WaitDelay = 20 * time.Second
	if err := h.cmd.Start(); err != nil {
		l.t.Fatal(err)
	}
	go func() {
		_ = h.cmd.Wait()
		h.end <- h.cmd.ProcessState.ExitCode()
	}()
	l.t.Cleanup(func() { _ = h.cmd.Process.Kill() })
	return h
}

// want waits for the exit code and the output.
func (h *holding) want(code int, output string) {
	h.t.Helper()
	select {
	case got := <-h.end:
		if got != code || !strings.Contains(h.out.String(), output) {
			h.t.Fatalf("exit code %d, want %d; output %q, want %q", got, code, h.out.String(), output)
		}
	case <-time.After(20 * time.Second):
		h.t.Fatalf("%v does not end; output %q", h.cmd.Args, h.out.String())
	}
}

// wrote waits until the command has written a file, and returns its text.
func (l *locks) wrote(name string) string {
	l.t.Helper()
	var text []byte
	redistest.Eventually(l.t, 20*time.Second, "the file "+name, func() bool {
		text, _ = os.ReadFile(filepath.Join(l.dir, name))
		return bytes.HasSuffix(text, []byte("\n"))
	})
	return strings.TrimSpace(string(text))
}

// goOn writes a line to the command that reads from the pipe.
func (l *locks) goOn() {
	l.t.Helper()
	if err := os.WriteFile(filepath.Join(l.dir, "wait"), []byte("go on\n"), 0o600); err != nil {
		l.t.Fatal(err)
	}
}

// waiting waits until n clients wait for the lock job.
func (l *locks) waiting(n int) {
	l.t.Helper()
	redistest.Eventually(l.t, 20*time.Second, fmt.Sprint(n, " to wait"), func() bool {
		out, err := l.program("info", "--json", "job").Output()
		return err == nil && strings.Contains(string(out), fmt.Sprintf(`"local_waiters": %d`, n))
	})
}

// extended waits until the lease of the lock job grows.
func (l *locks) extended() {
	l.t.Helper()
	least := int64(math.MaxInt64)
	redistest.Eventually(l.t, 20*time.Second, "the lease to be extended", func() bool {
		left, _ := l.redis.Do(l.t, "PTTL", "job").(int64)
		least = min(least, left)
		return left > least
	})
}

// killProxy ends the proxy at once.
func (l *locks) killProxy() {
	l.proxy.cmd.Process.Kill()
	l.proxy.once.Do(func() { _ = l.proxy.cmd.Wait() })
}

// unlock ends the lock job by force.
func (l *locks) unlock() {
	l.t.Helper()
	if out, err := l.program("unlock", "job").CombinedOutput(); err != nil || string(out) != "unlocked\n" {
		l.t.Fatalf("unlock: %s, %v", out, err)
	}
}

// free waits until nobody has the lock.
func (l *locks) free(key string, within time.Duration) {
	l.t.Helper()
	redistest.Eventually(l.t, within, key+" to be free", func() bool { return l.redis.Client(l.t).Exists(l.t.Context(), key).Val() == 0 })
}

// gone waits until the processes whose numbers are in the file do not run.
func (l *locks) gone(file string) {
	l.t.Helper()
	for pid := range strings.FieldsSeq(l.wrote(file)) {
		redistest.Eventually(l.t, 20*time.Second, "the end of process "+pid, func() bool {
			n, err := strconv.Atoi(pid)
			if err != nil {
				l.t.Fatal(err)
			}
			if errors.Is(syscall.Kill(n, 0), syscall.ESRCH) {
				return true
			}
			stat, err := os.ReadFile("/proc/" + pid + "/stat") // a zombie that nobody collects
			return err == nil && strings.Contains(string(stat), ") Z ")
		})
	}
}

// family starts a process beside the command, and writes the numbers of both. Both ignore SIGTERM.
const family = `trap "" TERM; (sleep 100) & echo $$ $! > pids; wait; wait`

func TestExecPassesTheExitCodeOn(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.start("job", "--", "sh", "-c", `echo "$LOCK_KEY" "$LOCK_FENCE" > out; exit 7`).want(7, "")
	if key, fence, _ := strings.Cut(l.wrote("out"), " "); key != "job" || len(fence) < 10 {
		t.Errorf("environment: %q %q", key, fence)
	}
	l.free("job", time.Second)
	l.start("job", "--", "sh", "-c", "kill -9 $$").want(128+9, "")
	l.free("job", time.Second)
	l.start("job", "--", "no-such-command").want(cli.ExitNotFound, "not found")
	l.start("job", "--", "/dev/null").want(cli.ExitNoExec, "permission denied")
	l.start("job", "--", "/").want(cli.ExitNoExec, "is a directory")
	l.start("", "--", "true").want(cli.ExitUsage, "empty")
	l.start("job").want(cli.ExitUsage, "")
	l.start("--lease", "10ms", "job", "--", "true").want(cli.ExitUsage, "--lease")
	l.start("-u", "127.0.0.1:1", "job", "--", "true").want(cli.ExitUnreachable, "refused")
	l.redis.Do(t, "SET", "text", "x")
	l.start("text", "--", "true").want(cli.ExitUnreachable, "WRONGTYPE")
}

// A program is found, started and ended as under flock(1).
func TestExecStartsWhatFlockStarts(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	if err := os.WriteFile(filepath.Join(l.dir, "no-interpreter"), []byte("echo \"$0 $1\" > out\nexit 5\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	l.start("job", "--", "./no-interpreter", "arg").want(5, "")
	if got := l.wrote("out"); got != "./no-interpreter arg" {
		t.Errorf("a script without #! has got %q", got)
	}
	self, err := exec.LookPath("lockproxy")
	if err != nil {
		t.Fatal(err)
	}
	run := func(path, command string) {
		t.Helper()
		cmd := exec.Command("/bin/sh", "-c", command, "sh", self)
		cmd.Env, cmd.Dir = []string{"LOCKPROXY_URL=redis://" + l.addr}, l.dir
		if path != "unset" {
			cmd.Env = append(cmd.Env, "PATH="+path)
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("PATH %s: %s, %v", path, out, err)
		}
	}
	run("/bin:.", `"$1" exec job -- no-interpreter; test $? = 5`)
	run("unset", `unset PATH; "$1" exec job -- true`)
	for _, ignored := range []string{"TERM", "INT", "HUP", "QUIT", "TERM INT HUP QUIT"} {
		run("/bin:/usr/bin", `trap "" `+ignored+`; "$1" exec job -- sh -c 'for s in `+ignored+`; do kill -$s $$ $PPID $(ps -o ppid= -p $PPID); done; exit 4'; test $? = 4`)
	}
	run("/bin:/usr/bin", `"$1" exec job -- sh -c 'kill -TERM $$'; test $? = 143`)
}

// Two hosts whose clocks differ run a short job once.
func TestALockIsHeldForTheLeastTime(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	for i, kind := range [][]string{nil, {"--limit", "1"}, {"--shared"}} {
		key := fmt.Sprint("job", i)
		args := append(slices.Clone(kind), "-n", "--min-hold", "1m", "--lease", "2s", key, "--", "sh", "-c")
		l.start(append(args, "exit 3")...).want(3, "")
		other := append(slices.Clone(kind), "-n", key, "--", "true")
		if i == 2 {
			other = other[1:] // an exclusive one
		}
		l.start(other...).want(cli.ExitBusy, "another client has the lock")
		if left := l.redis.Client(t).PTTL(t.Context(), key).Val(); left < 30*time.Second || left > time.Minute {
			t.Errorf("%v: %v are left", kind, left)
		}
		key += "killed"
		args = append(slices.Clone(kind), "-n", "--min-hold", "1m", "--lease", "2s", key, "--", "sh", "-c")
		h := l.start(append(args, "echo in > "+key+"; exec sleep 100")...)
		l.wrote(key)
		_ = h.cmd.Process.Kill()
		h.want(-1, "")
		redistest.Eventually(t, 20*time.Second, "the guard to keep the lock", func() bool {
			return l.redis.Client(t).PTTL(t.Context(), key).Val() > 30*time.Second
		})
	}
	l.start("--min-hold", "1ms", "job", "--", "sleep", "0.01").want(0, "")
	l.free("job", time.Second)
	l.start("--min-hold", "1m", "job", "--", "/nosuch").want(cli.ExitNotFound, "")
	l.free("job", time.Second)
}

// An exec inside the command of another one for the same lock would wait for ever.
func TestExecWithinItself(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	inner := []string{"job", "--", "lockproxy", "exec", "job", "--", "true"}
	l.start(inner...).want(cli.ExitBusy, "job: the exec around this one has the lock")
	l.start(append([]string{"-s"}, "job", "--", "lockproxy", "exec", "-s", "job", "--", "true")...).want(0, "")
	l.free("job", time.Second)
	next := newLocks(t) // the lock of that name at another Redis
	next.start("job", "--", "lockproxy", "exec", "-u", l.addr, "job", "--", "true").want(0, "")
}

func TestAMissingPasswordIsNamed(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.redis.Do(t, "ACL", "SETUSER", "default", ">pw")
	l.start("job", "--", "true").want(cli.ExitUnreachable, "NOAUTH Authentication required. (--url has no password)")
	l.start("-u", "redis://:pw@"+l.addr, "job", "--", "true").want(0, "")
}

func TestExecExcludes(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.start("--lease", "10s", "job", "--", "sh", "-c", "echo in > in; read x < wait; echo out")
	l.wrote("in")
	l.start("--wait", "0s", "job", "--", "true").want(cli.ExitBusy, "another client has the lock")
	l.start("--wait", "500ms", "--fair", "job", "--", "true").want(cli.ExitBusy, "")
	l.extended()
	waiting := l.start("job", "--", "sh", "-c", "echo next > next")
	interrupted := l.start("job", "--", "true")
	l.waiting(2)
	_ = interrupted.cmd.Process.Signal(syscall.SIGTERM)
	interrupted.want(128+15, "")
	l.waiting(1)
	l.goOn()
	first.want(0, "out")
	waiting.want(0, "")
	l.wrote("next")
}

func TestSharedCommandsRunBesideEachOther(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.start("--shared", "job", "--", "sh", "-c", "echo in > in; read x < wait")
	l.wrote("in")
	second := l.start("-s", "job", "--", "sh", "-c", family)
	l.wrote("pids")
	l.start("--wait", "0s", "job", "--", "true").want(cli.ExitBusy, "one of 2 holders")
	exclusive := l.start("job", "--", "sh", "-c", "echo next > next")
	l.waiting(1)
	l.start("-s", "--wait", "0s", "job", "--", "true").want(cli.ExitBusy, "") // it has come behind the one that waits
	_ = second.cmd.Process.Kill()
	second.want(-1, "")
	l.gone("pids")
	redistest.Eventually(t, 10*time.Second, "the guard to release that hold alone", func() bool {
		out, err := l.program("info", "job").Output()
		return err == nil && strings.Contains(string(out), "shared") && !strings.Contains(string(out), "HOLDER")
	})
	l.goOn()
	first.want(0, "")
	exclusive.want(0, "")
	l.wrote("next")
	l.free("job", time.Second)
}

func TestAtMostNCommandsRun(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	first := l.start("--limit", "2", "--lease", "10s", "job", "--", "sh", "-c", "echo $LOCK_FENCE > fence; read x < wait; echo done")
	fence := l.wrote("fence")
	second := l.start("--limit", "2", "job", "--", "sh", "-c", family)
	l.wrote("pids")
	l.start("--limit", "2", "-n", "job", "--", "true").want(cli.ExitBusy, "one of 2 holders")
	l.start("-n", "job", "--", "true").want(cli.ExitUnreachable, "WRONGTYPE") // permits are a type of their own
	l.start("--limit", "3", "-n", "job", "--", "true").want(0, "")            // the limit is that of the call
	waiting := l.start("--limit", "2", "job", "--", "sh", "-c", "echo next > next")
	l.waiting(1)
	_ = second.cmd.Process.Kill()
	second.want(-1, "")
	l.gone("pids")
	waiting.want(0, "") // the guard has released that permit, and no other
	l.wrote("next")

	l.killProxy()
	startProcess(t, "--listen", l.addr, "--upstream", l.redis.Addr()).awaitLog(1, "connected to upstream")
	l.extended()
	if out, err := l.program("info", "job").Output(); err != nil || !strings.Contains(string(out), fence) || strings.Contains(string(out), "HOLDER") {
		t.Errorf("the permit with fence %s is not the only one: %s, %v", fence, out, err)
	}
	l.goOn()
	first.want(0, "done")
	l.free("job", time.Second)
}

func TestExecPassesSignalsOn(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	h := l.start("job", "--", "sh", "-c", `trap "echo hup" HUP; trap "echo term; exit 3" TERM; echo up > up; while :; do sleep 0.05; done`)
	l.wrote("up")
	_ = h.cmd.Process.Signal(syscall.SIGHUP)
	redistest.Eventually(t, 20*time.Second, "the first signal", func() bool { return strings.Contains(h.out.String(), "hup") })
	_ = h.cmd.Process.Signal(syscall.SIGTERM)
	h.want(3, "term")
	l.free("job", time.Second)
}

// No process of the command survives exec, and nobody waits for the lease of 30 s.
func TestDeathOfExecLeavesNoOrphans(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	h := l.start("job", "--", "sh", "-c", `trap "" TERM HUP; (sleep 100) & trap "echo $$ $! > pids" HUP; echo up > up; while :; do wait; done`)
	l.wrote("up")
	_ = h.cmd.Process.Signal(syscall.SIGHUP) // is passed on when the guard knows the processes
	l.wrote("pids")
	_ = h.cmd.Process.Kill()
	h.want(-1, "")
	l.gone("pids")
	l.free("job", 10*time.Second)
}

// Nobody releases the lock of an exec that is killed together with its guard. It ends with its own lease, not with that
// of the proxy.
func TestTheLeaseOfExecEndsTheLock(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	for i, kind := range [][]string{nil, {"--fair"}, {"-s"}, {"--limit", "2"}} {
		key := fmt.Sprint("job", i)
		args := append(slices.Clone(kind), "--lease", "2s", key, "--", "sh", "-c", "echo $$ $PPID > pids"+key+"; exec sleep 100")
		h := l.start(args...)
		var command, guard int
		if _, err := fmt.Sscan(l.wrote("pids"+key), &command, &guard); err != nil {
			t.Fatal(err)
		}
		_ = h.cmd.Process.Signal(syscall.SIGSTOP) // the end of one tells the other
		_ = syscall.Kill(guard, syscall.SIGKILL)
		_ = h.cmd.Process.Kill()
		_ = syscall.Kill(command, syscall.SIGKILL)
		h.want(-1, "")
		if left := l.redis.Client(t).PTTL(t.Context(), key).Val(); left > 2*time.Second {
			t.Errorf("%v: %v are left of a lease of 2s", kind, left)
		}
		l.free(key, 20*time.Second)
	}
}

func TestForcedUnlockEndsTheCommand(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	for i, kind := range [][]string{nil, {"-s"}, {"--limit", "2"}} {
		pids := fmt.Sprint("pids", i)
		command := strings.ReplaceAll(family, "pids", pids)
		h := l.start(append(kind, "--lease", "5s", "job", "--", "sh", "-c", command)...)
		l.wrote(pids)
		l.unlock()
		h.want(cli.ExitLost, "job: ending the command: the lock was lost: FORCEUNLOCK has removed it")
		l.gone(pids)
	}
}

// The reader of standard error stands still, or has gone: the command is ended as always.
func TestAMessageHoldsUpNoSupervision(t *testing.T) {
	t.Parallel()
	for _, reader := range []string{"stopped", "gone"} {
		t.Run(reader, func(t *testing.T) {
			t.Parallel()
			l := newLocks(t)
			var ends [2]int
			if err := syscall.Pipe(ends[:]); err != nil {
				t.Fatal(err)
			}
			syscall.CloseOnExec(ends[0])
			syscall.CloseOnExec(ends[1])
			stderr := os.NewFile(uintptr(ends[1]), "stderr")
			defer stderr.Close()
			if reader == "gone" {
				_ = syscall.Close(ends[0])
			} else {
				defer func() { _ = syscall.Close(ends[0]) }()
				fill(t, ends[1])
			}
			h := l.begin(stderr, "--lease", "5s", "job", "--", "sh", "-c",
				`trap "echo term > term" TERM; (trap "" TERM; exec sleep 100) & echo $$ $! > pids; while :; do wait; done`)
			l.wrote("pids")
			l.unlock()
			l.wrote("term") // before the kill
			h.want(cli.ExitLost, "")
			l.gone("pids")

			// A message at the end holds up neither the release nor the end.
			h = l.begin(stderr, "job", "--", "sh", "-c", "echo up > up; read x < wait; exit 3")
			l.wrote("up")
			l.redis.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1") // a refused release is told
			l.goOn()
			h.want(3, "")
		})
	}
}

// fill fills a pipe.
func fill(t *testing.T, pipe int) {
	t.Helper()
	if err := syscall.SetNonblock(pipe, true); err != nil {
		t.Fatal(err)
	}
	for chunk := bytes.Repeat([]byte("x"), 4096); len(chunk) > 0; {
		if _, err := syscall.Write(pipe, chunk); errors.Is(err, syscall.EAGAIN) {
			chunk = chunk[:len(chunk)/2]
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := syscall.SetNonblock(pipe, false); err != nil {
		t.Fatal(err)
	}
}

func TestMaxHoldEndsTheCommand(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.start("--lease", "3s", "--max-hold", "3s", "job", "--", "sh", "-c", family).want(cli.ExitHeldOut, "--max-hold is over")
	l.gone("pids")
	l.free("job", time.Second)
}

// The command ends before the lease does that nobody can extend: the next holder meets no process of it.
func TestSilenceEndsTheCommandBeforeTheLease(t *testing.T) {
	t.Parallel()
	for _, away := range []string{"proxy", "redis"} {
		t.Run(away, func(t *testing.T) {
			t.Parallel()
			l := newLocks(t)
			h := l.start("--lease", "4s", "job", "--", "sh", "-c", family)
			l.wrote("pids")
			switch away {
			case "proxy":
				l.killProxy()
			case "redis":
				l.redis.Pause()
				t.Cleanup(l.redis.Continue)
			}
			began := time.Now()
			h.want(cli.ExitLost, "the proxy does not confirm the lock any more")
			l.gone("pids")
			if away == "proxy" && l.redis.Client(t).Exists(t.Context(), "job").Val() == 0 && time.Since(began) < time.Second {
				t.Error("the lock ended before the command")
			}
		})
	}
}

// The lock outlives a proxy that comes back in time.
func TestExecGoesOnWhenTheProxyIsBack(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	h := l.start("--lease", "10s", "job", "--", "sh", "-c", "echo $LOCK_FENCE > fence; read x < wait; echo done")
	fence := l.wrote("fence")
	l.killProxy()
	next := startProcess(t, "--listen", l.addr, "--upstream", l.redis.Addr())
	next.awaitLog(1, "connected to upstream")
	redistest.Eventually(t, 20*time.Second, "the lock to be held through the new proxy", func() bool {
		out, err := l.program("locks").CombinedOutput()
		return err == nil && strings.Contains(string(out), fence)
	})
	l.goOn()
	h.want(0, "done")
	l.free("job", time.Second)
}

func TestSubcommandsShowLocks(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	run := func(code int, args ...string) string {
		t.Helper()
		cmd := l.program(args...)
		out, _ := cmd.CombinedOutput()
		if got := cmd.ProcessState.ExitCode(); got != code {
			t.Fatalf("%v: exit code %d, want %d: %s", args, got, code, out)
		}
		return string(out)
	}
	run(cli.ExitNo, "info", "job")
	run(cli.ExitNo, "unlock", "job")
	if got := run(cli.ExitOK, "locks", "--json"); got != "[]\n" {
		t.Errorf("no locks: %q", got)
	}
	h := l.start("--lease", "3s", "a\x1b[31m", "--", "sh", "-c", "echo $LOCK_FENCE > fence; exec sleep 100")
	fence := l.wrote("fence")
	if got := run(cli.ExitOK, "locks"); !strings.Contains(got, `"a\x1b[31m"`) || !strings.Contains(got, fence) || !strings.Contains(got, "lockproxy-exec") {
		t.Errorf("locks: %q", got)
	}
	var list []struct {
		Key, Owner string
		Fence      int64
		Lease      int64 `json:"lease_ms"`
	}
	if err := json.Unmarshal([]byte(run(cli.ExitOK, "locks", "--json", "--match", "a*", "--count", "5")), &list); err != nil {
		t.Fatal(err)
	}
	if len(list) != 1 || list[0].Key != "a\x1b[31m" || fmt.Sprint(list[0].Fence) != fence || list[0].Lease < 1000 {
		t.Errorf("locks: %+v", list)
	}
	if got := run(cli.ExitOK, "info", list[0].Key); !strings.Contains(got, fence) || !strings.Contains(got, "holds    1") {
		t.Errorf("info: %q", got)
	}
	run(cli.ExitNo, "unlock", "--owner", "somebody", list[0].Key)
	run(cli.ExitOK, "unlock", "--owner", list[0].Owner, list[0].Key)
	h.want(cli.ExitLost, "")
	run(cli.ExitUnreachable, "locks", "-u", "127.0.0.1:1")
	run(cli.ExitUsage, "locks", "-u", "http://127.0.0.1")
	if got := run(cli.ExitOK, "exec", "--help"); !strings.Contains(got, "75") {
		t.Errorf("help: %q", got)
	}
}

// Names and arguments are bytes. Those that are not UTF-8 reach Redis, the command and the guard as they are.
func TestNamesAreBytes(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	const key = "caf\xe9 \xff\x80"
	h := l.start(key, "--", "sh", "-c", `printf '%s|%s\n' "$LOCK_KEY" "$1" > out; exec sleep 100`, "sh", "\xe9")
	if got := l.wrote("out"); got != key+"|\xe9" {
		t.Errorf("the command has got %q", got)
	}
	if l.redis.Client(t).Exists(t.Context(), key).Val() != 1 {
		t.Error("no lock has the name")
	}
	l.start("--wait", "0s", key, "--", "true").want(cli.ExitBusy, `"caf\xe9 \xff\x80": another client has the lock`)
	l.start("--wait", "0s", "caf\ufffd \ufffd\ufffd", "--", "true").want(0, "")
	out, err := l.program("locks", "--json", "--match", "*\xe9*").Output()
	if err != nil || !strings.Contains(string(out), `"key_base64": "`+base64.StdEncoding.EncodeToString([]byte(key))+`"`) {
		t.Errorf("%s, %v", out, err)
	}
	if out, err := l.program("info", key).Output(); err != nil || !strings.HasPrefix(string(out), "owner ") {
		t.Errorf("%s, %v", out, err)
	}
	_ = h.cmd.Process.Kill()
	h.want(-1, "")
	l.free(key, 10*time.Second)

	h = l.start(key, "--", "sh", "-c", "echo in > in; exec sleep 100")
	l.wrote("in")
	if out, err := l.program("unlock", key).CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	h.want(cli.ExitLost, "")
}

// A file is named by its bytes, in an argument or in a variable.
func TestPathsAreBytes(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	file := filepath.Join(l.dir, "caf\xe9")
	if err := os.WriteFile(file, []byte("listen: [\"127.0.0.1:7379\"]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := l.program("--check", "--config", file).CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	check := l.program("--check")
	check.Env = slices.DeleteFunc(append(check.Env, "LOCKPROXY_CONFIG="+file, "LOCKPROXY_LISTEN=unix:/"+file), func(entry string) bool {
		return strings.HasPrefix(entry, "LOCKPROXY_URL=")
	})
	if out, err := check.CombinedOutput(); err != nil {
		t.Errorf("%s, %v", out, err)
	}
	if err := os.WriteFile(file, []byte("upstream:\n  password: caf\xe9\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := l.program("--check", "--config", file).CombinedOutput(); err == nil || !strings.Contains(string(out), "not UTF-8") {
		t.Errorf("%s, %v", out, err)
	}
}

// The lock of an exec around another one is not in the environment of the inner command.
func TestExecWithinExec(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	l.start("outer", "--", "lockproxy", "exec", "inner", "--", "sh", "-c", "env | grep ^LOCK_KEY > out").want(0, "")
	if got := l.wrote("out"); got != "LOCK_KEY=inner" {
		t.Errorf("%q", got)
	}
}

// A proxy that accepts connections and never answers is named, with the question.
func TestAHangingProxyIsNamed(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0") // nobody accepts, and the system does
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	l := &locks{t: t, dir: t.TempDir(), addr: listener.Addr().String()}
	var all sync.WaitGroup
	for _, args := range [][]string{
		{"locks"}, {"info", "job"}, {"unlock", "job"}, {"exec", "job", "--", "true"}, {"exec", "--wait", "0s", "job", "--", "true"}, {"locks", "-u", "rediss://" + l.addr},
	} {
		all.Go(func() {
			cmd := l.program(args...)
			out, _ := cmd.CombinedOutput()
			if code := cmd.ProcessState.ExitCode(); code != cli.ExitUnreachable || !strings.Contains(string(out), "the proxy at "+l.addr+" has not answered ") {
				t.Errorf("%v: exit code %d, %s", args, code, out)
			}
		})
	}
	all.Wait()
}

// A proxy that stops is named, by the command that runs and by those that wait.
func TestAProxyThatStopsIsNamed(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	running := l.start("--lease", "3s", "job", "--", "sh", "-c", family)
	l.wrote("pids")
	waiting := []*holding{l.start("job", "--", "true"), l.start("--wait", "1h", "job", "--", "true")}
	l.waiting(2)
	_ = l.proxy.cmd.Process.Signal(syscall.SIGSTOP)
	t.Cleanup(func() { _ = l.proxy.cmd.Process.Signal(syscall.SIGCONT) })
	running.want(cli.ExitLost, "the proxy does not confirm the lock any more: the proxy at "+l.addr+" has not answered ")
	l.gone("pids")
	for _, h := range waiting {
		redistest.Eventually(t, time.Minute, "the end of the wait", func() bool { return len(h.end) == 1 })
		h.want(cli.ExitUnreachable, "job: the proxy at "+l.addr+" has not answered ")
	}
}

// An exec that was stopped for longer than its lease asks for its lock, and goes on.
func TestExecIsStoppedAlone(t *testing.T) {
	t.Parallel()
	l := newLocks(t)
	h := l.start("--lease", "1s", "job", "--", "sh", "-c", "echo in > in; read x < wait; exit 7")
	l.wrote("in")
	_ = h.cmd.Process.Signal(syscall.SIGSTOP)
	began := time.Now()
	redistest.Eventually(t, 20*time.Second, "two leases", func() bool {
		if l.redis.Client(t).Exists(t.Context(), "job").Val() != 1 {
			t.Fatal("the lock has ended")
		}
		return time.Since(began) > 2*time.Second
	})
	_ = h.cmd.Process.Signal(syscall.SIGCONT)
	l.goOn()
	h.want(7, "")
}
