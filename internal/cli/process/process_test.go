package process

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// asGuard is the first argument of this program as a guard.
const asGuard = "guard of a test"

// firstThreadEnds in the environment makes this program end its first thread, and go on by others.
const firstThreadEnds = "FIRST_THREAD_ENDS"

func init() {
	if os.Getenv(firstThreadEnds) != "" {
		runtime.LockOSThread() // main runs on the first thread
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(firstThreadEnds) != "" {
		go func() {
			for state := ""; state != "Z"; time.Sleep(time.Millisecond) {
				stat, _ := os.ReadFile("/proc/self/stat")
				_, after, _ := strings.Cut(string(stat), ") ")
				state = after[:1]
			}
			fmt.Println("ready")
			time.Sleep(10 * time.Minute)
		}()
		_, _, _ = unix.RawSyscall(unix.SYS_EXIT, 0, 0, 0)
	}
	if len(os.Args) > 1 && os.Args[0] == asGuard {
		socket, _ := strconv.Atoi(os.Args[1])
		note, err := Guard(socket)
		switch {
		case err != nil:
			os.Exit(2)
		case note != nil:
			_, _ = os.Stderr.Write(note)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // or each guard ends a second late under the race detector
		panic(err)
	}
	if signal.Ignored(unix.SIGHUP) { // under nohup(1): the commands of tests must not inherit it
		signal.Notify(make(chan os.Signal, 1), unix.SIGHUP)
	}
	os.Exit(m.Run())
}

const limit = 20 * time.Second // of a test for an event

// start starts a script, and returns what it writes. The end of its output says that no process is left, the guard
// included.
func start(t *testing.T, script string) (*Command, *bufio.Reader) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	keep, err := unix.FcntlInt(in.Fd(), unix.F_DUPFD, 10) // inherited, as a file that a shell has opened
	if err != nil {
		t.Fatal(err)
	}
	in.Close()
	c, err := Start(Options{
		Path: "/bin/sh", Args: []string{"sh", "-c", fmt.Sprintf("exec >/dev/fd/%d; ", keep) + script}, Env: os.Environ(),
		Guard: []string{asGuard}, Note: []byte("note"),
	})
	unix.Close(keep)
	if err != nil {
		t.Fatal(err)
	}
	_ = out.SetReadDeadline(time.Now().Add(limit))
	t.Cleanup(func() {
		c.Kill()
		out.Close()
	})
	return c, bufio.NewReader(out)
}

// read reads the next line.
func read(t *testing.T, out *bufio.Reader) string {
	t.Helper()
	line, err := out.ReadString('\n')
	if err != nil {
		t.Fatalf("%q, %v", line, err)
	}
	return strings.TrimSuffix(line, "\n")
}

// gone fails the test if a process of the command goes on, or has written more.
func gone(t *testing.T, out *bufio.Reader) {
	t.Helper()
	if rest, err := io.ReadAll(out); err != nil || len(rest) > 0 {
		t.Fatalf("a process of the command is alive: %q, %v", rest, err)
	}
}

// exit waits for the end of a command.
func exit(t *testing.T, c *Command) Exit {
	t.Helper()
	select {
	case e := <-c.Ended():
		return e
	case <-time.After(limit):
		c.Kill()
		t.Fatal("the command has not ended")
		return Exit{}
	}
}

// orphans leaves a process whose parent has ended, one in a session of its own, and one that ignores signals.
const orphans = `(sleep 600 &); setsid sleep 601 & trap "" TERM; (sleep 602) & echo ready; wait; wait; sleep 603`

func TestACommandThatCannotBeExecuted(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, []byte("#!/nosuch\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	if _, err := Start(Options{Path: file, Args: []string{file}, Guard: []string{asGuard}}); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Error(err)
	}
}

// Programs are found as execvp(3) finds them, also where package exec refuses them.
func TestAProgramIsFoundInTheCurrentDirectory(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("here", nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]error{".": nil, ":/nosuch": nil, "/nosuch": exec.ErrNotFound} {
		t.Setenv("PATH", path)
		if got, err := Find("here"); !errors.Is(err, want) || err == nil && got != "./here" {
			t.Errorf("PATH=%s: %q, %v", path, got, err)
		}
	}
}

func TestAllProcessesGetASignal(t *testing.T) {
	c, out := start(t, "sleep 600 & echo ready; wait")
	read(t, out)
	c.Pass(unix.SIGTERM)
	if e := exit(t, c); e.Signal != unix.SIGTERM || e.Code != 143 {
		t.Errorf("%+v", e)
	}
	c.End()
	gone(t, out)
}

// A signal that ends processes continues a stopped one, or it would get the signal never.
func TestAStoppedCommandEnds(t *testing.T) {
	for _, sig := range []unix.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT} {
		c, out := start(t, `trap "echo `+unix.SignalName(sig)+`; exit 3" TERM INT HUP QUIT; echo ready; kill -STOP $$; while :; do sleep 0.01; done`)
		read(t, out)
		stopped(t, c.pid)
		c.Pass(sig)
		if e := exit(t, c); e.Code != 3 {
			t.Errorf("%v: %+v", sig, e)
		}
		if got := read(t, out); got != unix.SignalName(sig) {
			t.Errorf("%v: %q", sig, got)
		}
		c.End()
	}
}

// stopped waits until a process is stopped.
func stopped(t *testing.T, pid int) {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		text, err := exec.Command("ps", "-o", "stat=", "-p", strconv.Itoa(pid)).Output()
		if err == nil && strings.HasPrefix(string(text), "T") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the state is %q, %v", text, err)
		}
	}
}

func TestKillLeavesNoProcess(t *testing.T) {
	c, out := start(t, orphans)
	read(t, out)
	c.Kill()
	if e := exit(t, c); e.Signal != unix.SIGKILL {
		t.Errorf("%+v", e)
	}
	c.End()
	gone(t, out)
}

// Linux shows a process without its first thread as one that has ended.
func TestACommandWithoutItsFirstThreadIsKilled(t *testing.T) {
	c, out := start(t, firstThreadEnds+"=1 exec "+os.Args[0])
	read(t, out)
	c.Kill()
	if e := exit(t, c); e.Signal != unix.SIGKILL {
		t.Errorf("%+v", e)
	}
	c.End()
	gone(t, out)
}

// Processes that a command has left behind go on.
func TestAFarewellHarmsNoProcess(t *testing.T) {
	c, out := start(t, "(sleep 600 & echo $!)")
	pid, err := strconv.Atoi(read(t, out))
	if err != nil {
		t.Fatal(err)
	}
	exit(t, c)
	c.End()
	if err := unix.Kill(pid, unix.SIGKILL); err != nil {
		t.Error(err)
	}
	gone(t, out)
}

// The end of the socket without a farewell is the end of the supervisor.
func TestAnOrphanedCommandIsKilled(t *testing.T) {
	for name, end := range map[string]string{"nothing": "", "half of a farewell": farewell[:2]} {
		t.Run(name, func(t *testing.T) {
			c, out := start(t, orphans)
			read(t, out)
			_, _ = io.WriteString(c.socket, end)
			_ = unix.Shutdown(int(c.socket.Fd()), unix.SHUT_WR)
			gone(t, out)
			if e := exit(t, c); e.Signal != unix.SIGKILL {
				t.Errorf("%+v", e)
			}
			if state, err := c.guard.Wait(); err != nil || state.ExitCode() != 1 {
				t.Errorf("the guard has returned no note: %v, %v", state, err)
			}
		})
	}
}

// A command goes on without its guard, and its end is known.
func TestTheGuardMayDie(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("no process is adopted here")
	}
	c, out := start(t, "echo ready; sleep 0.1; exit 7")
	read(t, out)
	if err := c.guard.Kill(); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, c); e != (Exit{Code: 7}) {
		t.Errorf("%+v", e)
	}
	c.End()
}
