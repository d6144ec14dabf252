package process

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// order is the command that a guard is told to start. Texts are bytes, because JSON keeps no others than those of
// UTF-8.
type order struct {
	Path  []byte   `json:"path"`
	Args  [][]byte `json:"args"`
	Group int      `json:"group"` // the process group of the command; 0: one of its own
	Note  []byte   `json:"note"`
}

// report is the word of a guard: the first one when the command has started, or has not, and the last one when it has
// ended.
type report struct {
	PID    int             `json:"pid,omitempty"`
	Error  string          `json:"error,omitempty"`
	Status unix.WaitStatus `json:"status"`
}

// farewell ends a guard without harm. The end of the socket without it says that the supervisor has died.
const farewell = "end\n"

// reapLimit bounds the wait for killed processes to be gone.
const reapLimit = 5 * time.Second

// Guard is the guard: it starts the command and reports to its supervisor over a socket. If the supervisor has died, it
// kills all processes of the command and returns the note when none is left. nil: there is nothing to do.
func Guard(socket int) ([]byte, error) {
	syscall.CloseOnExec(socket)
	adopt()
	// These are for the supervisor, or stop its job. Those that it ignores, this process and the command ignore too.
	for _, sig := range append(slices.Clone(passed), unix.SIGTSTP) {
		if !signal.Ignored(sig) {
			signal.Notify(make(chan os.Signal, 1), sig)
		}
	}
	supervisor := os.NewFile(uintptr(socket), "supervisor")
	orders, reports := json.NewDecoder(supervisor), json.NewEncoder(supervisor)
	var o order
	if orders.Decode(&o) != nil {
		return nil, nil //nolint:nilerr // the supervisor has died before the command had a process
	}
	command, err := o.start()
	if err != nil {
		return nil, reports.Encode(report{Error: err.Error()})
	}
	_ = reports.Encode(report{PID: command})
	go reap(command, reports)
	rest, _ := io.ReadAll(io.MultiReader(orders.Buffered(), supervisor))
	if bytes.HasSuffix(rest, []byte(farewell)) {
		return nil, nil
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	processes := func() []int { return descendants(os.Getpid()) }
	for deadline := time.Now().Add(reapLimit); time.Now().Before(deadline); <-look.C {
		if toAll(processes, unix.SIGKILL); len(processes()) == 0 {
			return o.Note, nil
		}
	}
	return nil, errors.New("processes of the command are still alive")
}

// shell runs the scripts that do not name their interpreter.
const shell = "/bin/sh"

// start starts the command. As execvp(3) does, it has a script that does not begin with #! run by the shell.
func (o order) start() (pid int, err error) {
	var args []string
	for _, arg := range o.Args {
		args = append(args, string(arg))
	}
	path := string(o.Path)
	attr := &os.ProcAttr{
		Env:   os.Environ(),
		Files: []*os.File{os.Stdin, os.Stdout, os.Stderr},
		Sys:   &syscall.SysProcAttr{Setpgid: true, Pgid: o.Group},
	}
	p, err := os.StartProcess(path, args, attr)
	if errors.Is(err, unix.ENOEXEC) {
		p, err = os.StartProcess(shell, slices.Concat([]string{shell, path}, args[1:]), attr)
	}
	if err != nil {
		return 0, err
	}
	pid = p.Pid
	return pid, p.Release() // reap waits for it
}

// reap collects ended processes, and reports the end of the command.
func reap(command int, reports *json.Encoder) {
	for {
		var status unix.WaitStatus
		pid, err := unix.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
		case err != nil: // no process is left
			return
		case pid == command:
			_ = reports.Encode(report{Status: status})
		}
	}
}

// process is one process of the system.
type process struct {
	pid, parent int
	living      bool // false: it has ended, and its parent has not collected it
}

// descendants lists the living processes that a process has started, and those that these have started, parents first.
func descendants(root int) []int {
	children := map[int][]process{}
	for _, p := range allProcesses() {
		children[p.parent] = append(children[p.parent], p)
	}
	var found []int
	for next := []int{root}; len(next) > 0; next = next[1:] {
		for _, p := range children[next[0]] {
			next = append(next, p.pid)
			if p.living {
				found = append(found, p.pid)
			}
		}
	}
	return found
}

// zombie reports whether a process in this state, as ps writes it, has ended.
func zombie(state string) bool { return strings.HasPrefix(state, "Z") || strings.HasPrefix(state, "X") }
