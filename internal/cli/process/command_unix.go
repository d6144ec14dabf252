//go:build unix

package process

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a running command.
type Command struct {
	opts  Options
	group int
	tty   terminal
	guard *guard
	ended chan Exit
}

// Start starts the command with the standard files of this process.
func Start(opts Options) (*Command, error) {
	g, err := startGuard(opts.Guard)
	if err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	c := &Command{opts: opts, guard: g, tty: openTerminal(), ended: make(chan Exit, 1)}
	started := make(chan error, 1)
	go c.run(started)
	if err := <-started; err != nil {
		g.end()
		return nil, err
	}
	return c, nil
}

// run starts the command and waits for it, on one thread: Linux takes the end of the thread for the end of the parent.
func (c *Command) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	attr := &syscall.SysProcAttr{Setpgid: true}
	dieWithParent(attr)
	if c.tty.ours {
		attr.Foreground, attr.Ctty = true, c.tty.fd
	}
	p, err := os.StartProcess(c.opts.Path, c.opts.Args, &os.ProcAttr{
		Env: c.opts.Env, Files: []*os.File{os.Stdin, os.Stdout, os.Stderr}, Sys: attr,
	})
	if err != nil {
		started <- err
		return
	}
	c.group = p.Pid
	_ = p.Release() // it is waited for below, also when it is only stopped
	c.guard.watch(c.group, c.opts.Note)
	started <- nil
	exit := c.wait()
	c.tty.take()
	c.guard.end()
	c.ended <- exit
}

// wait returns when the command has ended.
func (c *Command) wait() Exit {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(c.group, &status, unix.WUNTRACED, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil:
			panic("BUG: wait for the command: " + err.Error())
		case status.Exited():
			return Exit{Code: status.ExitStatus()}
		case status.Signaled():
			return Exit{Code: 128 + int(status.Signal()), Signal: status.Signal()}
		case status.Stopped() && c.tty.ours:
			c.stop()
		}
	}
}

// stop stops the supervisor's own group as well, and continues the command when the shell continues that.
func (c *Command) stop() {
	c.tty.take()
	_ = unix.Kill(0, unix.SIGSTOP) // returns when a shell has said SIGCONT
	if !c.opts.MayGoOn() {
		_ = c.Signal(unix.SIGKILL)
	}
	c.tty.give(c.group)
	_ = c.Signal(unix.SIGCONT)
}

// Ended gets the exit of the command, once.
func (c *Command) Ended() <-chan Exit { return c.ended }

// Signal sends a signal to the command and all processes of its group.
func (c *Command) Signal(sig os.Signal) error {
	return unix.Kill(-c.group, sig.(syscall.Signal))
}

// Signals are passed on to the command. The terminal sends others to the group itself.
func Signals() []os.Signal {
	return []os.Signal{unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2}
}

// Terminate asks all processes of the group to end, also if they are stopped.
func (c *Command) Terminate() {
	_ = c.Signal(unix.SIGTERM)
	_ = c.Signal(unix.SIGCONT)
}

// Kill ends all processes of the group.
func (c *Command) Kill() { _ = c.Signal(unix.SIGKILL) }

// CodeOf is the exit code of a process that a signal has ended.
func CodeOf(sig os.Signal) int { return 128 + int(sig.(unix.Signal)) }
