package main

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
	"golang.org/x/sys/unix"
)

// screen is a pseudo-terminal with a shell that controls jobs.
type screen struct {
	keys  *os.File
	out   logBuffer
	seen  int // output before it was looked at
	asked int
}

// TestAtATerminal runs testdata/terminal/*.txtar with each shell whose control of jobs is tried. $SHELL is its name. Its
// scripts also have
//
//	terminal       starts the shell at a terminal of its own, which does not echo
//	type LINE      sends a line
//	press LETTER   sends that letter with Ctrl
//	shows REGEXP   waits for an output behind what was seen
//	jobs STATE     waits until the shell says that of its jobs
//	code N|?       waits until the shell is back, and demands that exit code of its last command; sets $CODE
//	unplug         closes the terminal
func TestAtATerminal(t *testing.T) {
	t.Parallel()
	for shell, args := range map[string][]string{"bash": {"--norc", "--noprofile", "--noediting", "-i"}, "dash": {"-i"}} {
		t.Run(shell, func(t *testing.T) {
			t.Parallel()
			if _, err := exec.LookPath(shell); err != nil && os.Getenv("LOCKPROXY_REQUIRE_REDIS") == "" {
				t.Skip(err)
			}
			all := scripts("terminal")
			all.Setup = func(env *testscript.Env) error {
				env.Setenv("SHELL", shell)
				return setUp(env)
			}
			maps.Copy(all.Cmds, map[string]func(*testscript.TestScript, bool, []string){
				"terminal": on(func(s *stage, _ []string) { s.terminal(args) }),
				"type":     on(func(s *stage, args []string) { s.press(args[0] + "\n") }),
				"press":    on(func(s *stage, args []string) { s.press(string(args[0][0] & 0x1f)) }),
				"shows":    on(func(s *stage, args []string) { s.shows(args[0]) }),
				"jobs":     on((*stage).jobs), "code": on((*stage).code),
				"unplug": on(func(s *stage, _ []string) { s.screen.keys.Close() }),
			})
			testscript.Run(t, all)
		})
	}
}

func (s *stage) terminal(args []string) {
	keys, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	s.Check(err)
	conn, err := keys.SyscallConn()
	s.Check(err)
	var number int
	var failed error
	s.Check(conn.Control(func(fd uintptr) {
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
	s.Check(failed)
	tty, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	s.Check(err)
	defer tty.Close()
	at := &screen{keys: keys}
	s.screen = at
	shell := s.command(append([]string{s.Getenv("SHELL")}, args...))
	shell.Env = append(shell.Env, "PS1=", "ENV=", "TERM=dumb", "HISTFILE=")
	shell.Stdin, shell.Stdout, shell.Stderr = tty, tty, tty
	shell.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: true}
	s.Check(shell.Start())
	read := make(chan struct{})
	go func() {
		defer close(read)
		buf := make([]byte, 4096)
		for {
			n, err := keys.Read(buf)
			_, _ = at.out.Write(buf[:n])
			if err != nil {
				return
			}
		}
	}()
	s.t.Cleanup(func() {
		if s.t.Failed() {
			s.t.Logf("the screen: %q", at.out.String())
		}
		_ = shell.Process.Kill() // its jobs get SIGHUP
		_ = shell.Wait()
		keys.Close()
		<-read
	})
}

func (s *stage) press(keys string) {
	_, err := s.screen.keys.WriteString(keys)
	s.Check(err)
}

// shows returns the output before what is waited for.
func (s *stage) shows(text string) (before string) {
	pattern := regexp.MustCompile(text)
	var at []int
	s.await(text, func() bool { at = pattern.FindStringIndex(s.screen.out.String()[s.screen.seen:]); return at != nil })
	before = s.screen.out.String()[s.screen.seen:][:at[0]]
	s.screen.seen += at[1]
	return before
}

// answer is the exit code of the command before, and the output of a command of the shell.
func (s *stage) answer(command string) (code, output string) {
	s.screen.asked++
	n := s.screen.asked
	s.press(fmt.Sprintf("echo \"<%d\"\":$?;\"; %s; echo \":\"\">%d\"\n", n, command, n))
	s.shows(fmt.Sprintf("<%d:", n))
	return s.shows(";"), s.shows(fmt.Sprintf(":>%d", n))
}

func (s *stage) jobs(args []string) {
	s.await("a job that is "+args[0], func() bool {
		_, jobs := s.answer("jobs")
		return strings.Contains(jobs, args[0])
	})
}

func (s *stage) code(args []string) {
	code, _ := s.answer(":")
	s.Setenv("CODE", code)
	s.print(s.screen.out.String())
	if args[0] != "?" && code != args[0] {
		s.Fatalf("exit code %s", code)
	}
}
