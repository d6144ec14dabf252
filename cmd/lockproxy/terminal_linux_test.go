package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// screen is a pseudo-terminal with a shell that controls jobs.
type screen struct {
	t     *testing.T
	keys  *os.File
	shell *os.Process
	out   logBuffer
	seen  int // output before it was looked at
	asked int
}

// shells are those whose control of jobs is tried.
var shells = map[string][]string{
	"bash": {"bash", "--norc", "--noprofile", "--noediting", "-i"},
	"dash": {"dash", "-i"},
}

// eachShell runs a test in each shell.
func eachShell(t *testing.T, test func(t *testing.T, l *locks, s *screen, shell string)) {
	for name, args := range shells {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path, err := exec.LookPath(name)
			if err != nil {
				if os.Getenv("LOCKPROXY_REQUIRE_REDIS") != "" {
					t.Fatal(err)
				}
				t.Skip(err)
			}
			l := newLocks(t)
			test(t, l, l.screen(path, args), name)
		})
	}
}

// screen starts a shell at a terminal of its own, which does not echo.
func (l *locks) screen(path string, args []string) *screen {
	l.t.Helper()
	fatal := func(err error) {
		if err != nil {
			l.t.Helper()
			l.t.Fatal(err)
		}
	}
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	fatal(err)
	conn, err := keys.SyscallConn()
	fatal(err)
	var number int
	var failed error
	fatal(conn.Control(func(fd uintptr) {
		var settings *unix.Termios
		if failed = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0); failed != nil {
			return
		}
		if number, failed = unix.IoctlGetInt(int(fd), unix.TIOCGPTN); failed != nil {
			return
		}
		if settings, failed = unix.IoctlGetTermios(int(fd), unix.TCGETS); failed != nil {
			return
		}
		settings.Lflag &^= unix.ECHO
		settings.Lflag |= unix.NOFLSH // or a signal takes away the keys that follow it
		failed = unix.IoctlSetTermios(int(fd), unix.TCSETS, settings)
	}))
	fatal(failed)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	fatal(err)
	defer tty.Close()
	s := &screen{t: l.t, keys: keys}
	shell := l.program()
	shell.Path, shell.Args = path, args
	shell.Env = append(shell.Env, "PS1=", "ENV=", "TERM=dumb", "HISTFILE=")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	fatal(shell.Start())
	s.shell = shell.Process
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			_, _ = s.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	l.t.Cleanup(func() {
		if l.t.Failed() {
			l.t.Logf("the screen: %q", s.out.String())
		}
		_ = shell.Process.Kill() // its jobs get SIGHUP
		_ = shell.Wait()
		keys.Close()
		<-read
	})
	return s
}

const (
	ctrlC = "\x03"
	ctrlZ = "\x1a"
)

// press sends keys to the terminal.
func (s *screen) press(keys string) {
	s.t.Helper()
	if _, err := s.keys.WriteString(keys); err != nil {
		s.t.Fatal(err)
	}
}

// line sends a line.
func (s *screen) line(format string, args ...any) {
	s.t.Helper()
	s.press(fmt.Sprintf(format, args...) + "\n")
}

// want waits for a text in the output behind what was seen, and returns the output before it.
func (s *screen) want(text string) (before string) {
	s.t.Helper()
	var at int
	redistest.Eventually(s.t, 20*time.Second, fmt.Sprintf("%q on the screen", text), func() bool {
		at = strings.Index(s.out.String()[s.seen:], text)
		return at >= 0
	})
	before = s.out.String()[s.seen:][:at]
	s.seen += at + len(text)
	return before
}

// ask runs a command of the shell and returns the exit code of the command before, and its output.
func (s *screen) ask(command string) string {
	s.t.Helper()
	s.asked++
	s.line(`echo "<%d"":$?"; %s; echo ":"">%d"`, s.asked, command, s.asked)
	s.want(fmt.Sprintf("<%d:", s.asked))
	return strings.TrimSpace(s.want(fmt.Sprintf(":>%d", s.asked)))
}

// jobs waits until the shell says something of its jobs, in the words of bash or dash.
func (s *screen) jobs(state string) {
	s.t.Helper()
	redistest.Eventually(s.t, 20*time.Second, "a job that is "+state, func() bool { return strings.Contains(s.ask("jobs"), state) })
}

// back waits until the shell has the terminal again, and returns the exit code of the last job.
func (s *screen) back() string {
	s.t.Helper()
	return s.ask(":")
}

// stopped waits until the process whose number is in the file is stopped.
func (l *locks) stopped(file string) {
	l.t.Helper()
	pid := l.wrote(file)
	redistest.Eventually(l.t, 20*time.Second, "the command to be stopped", func() bool {
		stat, err := os.ReadFile("/proc/" + pid + "/stat")
		return err == nil && strings.Contains(string(stat), ") T ")
	})
}

// A command in the background that reads from the terminal stops with all of its job, and goes on in the foreground.
func TestAtATerminalABackgroundReaderStops(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		s.line("lockproxy exec job -- sh -c 'echo $$ > pid; read x; echo got $x; exit 7' &")
		s.jobs("Stopped")
		l.stopped("pid")
		s.line("fg")
		s.line("a word")
		s.want("got a word")
		if code := s.back(); code != "7" {
			t.Errorf("exit code %s", code)
		}
		l.free("job", time.Second)
	})
}

// Another command of the same pipeline may read from the terminal.
func TestAtATerminalAPipelineReads(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		s.line(`lockproxy exec job -- sh -c 'echo one; read x < wait; echo $x' | sh -c 'read a; echo "got $a"; read b < /dev/tty; echo $b > wait; read c; echo "$a $b $c"'`)
		s.want("got one")
		s.line("two")
		s.want("one two two")
		if code := s.back(); code != "0" {
			t.Errorf("exit code %s", code)
		}
	})
}

// Ctrl-C ends a script, not only the command that it runs at the time.
func TestAtATerminalCtrlCEndsAScript(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, shell string) {
		script := func(lines string) {
			if err := os.WriteFile(filepath.Join(l.dir, "script"), []byte("echo $$ > shell\n"+lines+"\necho next $?\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			s.line("%s script", shell)
		}
		// Before the shell waits for the command, Ctrl-C ends the script, whatever the command does.
		interrupt := func() {
			redistest.Eventually(t, 20*time.Second, "the shell to wait", func() bool {
				pid, _ := os.ReadFile(filepath.Join(l.dir, "shell"))
				stat, _ := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
				_, state, _ := strings.Cut(string(stat), ") ")
				return strings.HasPrefix(state, "S")
			})
			s.press(ctrlC)
		}
		script("lockproxy exec job -- sh -c 'echo ready; exec sleep 100'")
		s.want("ready")
		interrupt()
		if code := s.back(); code != "130" {
			t.Errorf("while the command runs: exit code %s", code)
		}
		l.free("job", time.Second)

		holder := l.start("job", "--", "sh", "-c", "echo in > in; read x < wait")
		l.wrote("in")
		script("lockproxy exec job -- true")
		l.waiting(1)
		interrupt()
		if code := s.back(); code != "130" {
			t.Errorf("while it waits: exit code %s", code)
		}
		s.line("echo > wait")
		holder.want(0, "")
		if strings.Contains(s.out.String(), "next") {
			t.Errorf("the script goes on: %q", s.out.String())
		}

		// A shell may go on with a script if the command has handled the signal.
		handled := func(prefix string) (code string) {
			script(prefix + `sh -c 'trap "n=x\$n" INT; echo ready; while [ "$n" = "" ]; do sleep 0.01; done; echo "times: $n"; exit 3'`)
			s.want("ready")
			interrupt()
			s.want("times: x\r\n") // once
			return s.back()
		}
		if plain, under := handled(""), handled("lockproxy exec job -- "); plain != under {
			t.Errorf("a command that handles the signal: exit code %s, without exec %s", under, plain)
		}
	})
}

// stoppedJob starts a job that waits for a line, and stops it.
func (l *locks) stoppedJob(s *screen) {
	l.t.Helper()
	s.line("lockproxy exec --lease 4s job -- sh -c 'echo $$ > pid; echo ready; read x; echo got $x'")
	s.want("ready")
	s.press(ctrlZ)
	s.want("Stopped")
	l.stopped("pid") // before that, it may read what is for the shell
}

// A stopped job keeps its lock for longer than its lease, as under flock.
func TestAtATerminalAStoppedJobKeepsItsLock(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		l.stoppedJob(s)
		began := time.Now()
		redistest.Eventually(t, 20*time.Second, "the lease to be over", func() bool {
			if l.redis.Client(t).Exists(t.Context(), "job").Val() != 1 {
				t.Fatal("the lock has ended")
			}
			return time.Since(began) > 5*time.Second
		})
		s.line("fg")
		s.line("a word")
		s.want("got a word")
		if code := s.back(); code != "0" {
			t.Errorf("exit code %s", code)
		}
		l.free("job", time.Second)
	})
}

// A stopped job whose lock is lost does not go on.
func TestAtATerminalAStoppedJobMayLoseItsLock(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		l.stoppedJob(s)
		l.unlock()
		s.line("fg")
		s.want("the lock was lost")
		l.gone("pid") // until then the command reads what is typed
		if code := s.back(); code != "74" {
			t.Errorf("exit code %s", code)
		}
	})
}

// A stopped job whose shell dies ends, as under flock: no shell could continue it.
func TestAtATerminalAStoppedJobEndsWithItsShell(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		l.stoppedJob(s)
		if err := s.shell.Kill(); err != nil {
			t.Fatal(err)
		}
		l.free("job", 10*time.Second)
	})
}

// exec ends a command that is stopped alone.
func TestAtATerminalAStoppedCommandEnds(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		s.line(`lockproxy exec job -- sh -c 'trap "exit 3" TERM; echo $$ > pid; kill -STOP $$; while :; do sleep 0.01; done' &`)
		l.stopped("pid")
		s.line("kill $!; wait $!")
		if code := s.back(); code != "3" {
			t.Errorf("exit code %s", code)
		}
	})
}

// At a terminal too, the death of exec leaves no process.
func TestAtATerminalDeathLeavesNoOrphans(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		s.line("lockproxy exec job -- sh -c '%s' &", family)
		l.wrote("pids")
		s.line("kill -9 $!")
		l.gone("pids")
		l.free("job", 10*time.Second)
	})
}

// Closing the terminal ends the command.
func TestAtATerminalAHangUpEndsTheCommand(t *testing.T) {
	t.Parallel()
	eachShell(t, func(t *testing.T, l *locks, s *screen, _ string) {
		s.line("lockproxy exec job -- sh -c 'echo $$ > pids; exec sleep 100'")
		l.wrote("pids")
		s.keys.Close()
		l.gone("pids")
		l.free("job", 10*time.Second)
	})
}
