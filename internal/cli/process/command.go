package process

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Command is a running command.
type Command struct {
	terminal terminal
	guard    *os.Process
	socket   *os.File // to the guard
	reports  *json.Decoder
	pid      int
	ended    chan Exit
}

// Start starts the command with the standard files of this process.
func Start(opts Options) (*Command, error) {
	adopt()
	c := &Command{terminal: openTerminal(), ended: make(chan Exit, 1)}
	if err := c.startGuard(opts); err != nil {
		return nil, fmt.Errorf("start the guard: %w", err)
	}
	order := order{Path: []byte(opts.Path), Group: c.terminal.group(), Note: opts.Note}
	for _, arg := range opts.Args {
		order.Args = append(order.Args, []byte(arg))
	}
	err := json.NewEncoder(c.socket).Encode(order)
	var first report
	if err == nil {
		c.reports = json.NewDecoder(c.socket)
		err = c.reports.Decode(&first)
	}
	if err == nil && first.Error != "" {
		err = errors.New(first.Error)
	}
	if err != nil {
		c.End()
		return nil, err
	}
	c.pid = first.PID
	go func() { c.ended <- c.wait() }()
	return c, nil
}

// startGuard starts the guard, in a process group of its own: it must outlive a signal to the group of this process. At
// a terminal it is in this group, because it is the parent of the command. A parent in another group of the session
// would stand for a shell that controls the job: if the real one died, the kernel would not wake a stopped job with
// SIGHUP, and the lock would be held for ever. The guard's end of the socket keeps its number, because the files that
// this process has inherited are the command's.
func (c *Command) startGuard(opts Options) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ends, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err != nil {
		return err
	}
	syscall.CloseOnExec(ends[0]) // this process starts no other one
	c.socket = os.NewFile(uintptr(ends[0]), "guard")
	defer func() { _ = unix.Close(ends[1]) }()
	pid, err := syscall.ForkExec(self, append(slices.Clone(opts.Guard), strconv.Itoa(ends[1])), &syscall.ProcAttr{
		Env: opts.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setpgid: c.terminal.group() == 0},
	})
	if err == nil {
		c.guard, err = os.FindProcess(pid)
	}
	return err
}

// wait returns when the command has ended.
func (c *Command) wait() Exit {
	var last report
	if c.reports.Decode(&last) == nil {
		return exitOf(last.Status)
	}
	_, _ = c.guard.Wait() // it has died. On Linux the command is a child of this process now
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // this system does not let processes be adopted
			_ = unix.Kill(c.pid, unix.SIGKILL)
			return Exit{Code: CodeOf(unix.SIGKILL), Signal: unix.SIGKILL}
		case pid == c.pid:
			return exitOf(status)
		}
	}
}

func exitOf(status unix.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Code: CodeOf(status.Signal()), Signal: status.Signal()}
	}
	return Exit{Code: status.ExitStatus()}
}

// Ended gets the exit of the command, once.
func (c *Command) Ended() <-chan Exit { return c.ended }

// End ends the guard of a command that has ended. Processes that the command has left behind go on.
func (c *Command) End() {
	_, _ = io.WriteString(c.socket, farewell)
	_ = c.socket.Close()
	_, _ = c.guard.Wait() // it may have died before
}

// processes lists the processes of the command, parents first.
func (c *Command) processes() []int {
	return slices.DeleteFunc(descendants(os.Getpid()), func(pid int) bool { return pid == c.guard.Pid })
}

// signal sends a signal to the processes that the command has now.
func (c *Command) signal(sig syscall.Signal) {
	for _, pid := range c.processes() {
		_ = unix.Kill(pid, sig)
	}
}

// Listen has the signals that Pass takes sent to c. SIGHUP and SIGINT stay ignored, by the command as well, if they were
// when this process began, as under nohup(1). A message to a reader that has gone does not end this process.
func Listen(c chan<- os.Signal) {
	if !signal.Ignored(unix.SIGPIPE) { // of the standard files the runtime of Go dies, unless it is caught
		signal.Notify(make(chan os.Signal, 1), unix.SIGPIPE)
	}
	for _, sig := range passed {
		if !signal.Ignored(sig) {
			signal.Notify(c, sig)
		}
	}
}

// passed are the signals that are passed on.
var passed = []unix.Signal{
	unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGWINCH,
}

// Pass passes a signal that this process has got to all processes of the command. A signal that ends processes also
// continues those that are stopped. The terminal has sent its own signals to the command as well.
func (c *Command) Pass(sig os.Signal) {
	switch sig {
	case unix.SIGINT, unix.SIGQUIT, unix.SIGWINCH:
		if c.terminal.foreground() {
			return
		}
	}
	c.signal(sig.(syscall.Signal))
	switch sig {
	case unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT:
		c.signal(unix.SIGCONT)
	}
}

// Terminate asks all processes to end, also if they are stopped.
func (c *Command) Terminate() { c.Pass(unix.SIGTERM) }

// Kill ends all processes.
func (c *Command) Kill() { toAll(c.processes, unix.SIGKILL) }

// toAll sends a signal that no process can handle, also to processes that are started meanwhile.
func toAll(processes func() []int, sig syscall.Signal) {
	sent := map[int]bool{}
	for fresh := true; fresh; {
		fresh = false
		for _, pid := range processes() {
			if !sent[pid] {
				_ = unix.Kill(pid, sig)
				sent[pid], fresh = true, true
			}
		}
	}
}

// CodeOf is the exit code of a process that a signal has ended.
func CodeOf(sig os.Signal) int { return 128 + int(sig.(unix.Signal)) }

// EndBy ends this process by a signal, as its command has ended. A shell that runs a script ends the script only then.
// It returns if the signal is ignored.
func EndBy(sig os.Signal) {
	signal.Reset(sig)
	if !signal.Ignored(sig) && unix.Kill(os.Getpid(), sig.(syscall.Signal)) == nil {
		select {}
	}
}
