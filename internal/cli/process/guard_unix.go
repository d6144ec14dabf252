//go:build unix

package process

import (
	"bufio"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// charge is what a guard is told, in one line of JSON.
type charge struct {
	Group int    `json:"group"`
	Note  []byte `json:"note"`
}

// farewell ends a guard without harm. The end of the pipe without it says that the supervisor has died.
const farewell = "end\n"

// guard is the guard's end of its supervisor.
type guard struct {
	cmd  *exec.Cmd
	pipe io.WriteCloser
	gone sync.WaitGroup
}

func startGuard(args []string) (*guard, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := &exec.Cmd{Path: self, Args: args, SysProcAttr: &syscall.SysProcAttr{Setsid: true}}
	pipe, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	g := &guard{cmd: cmd, pipe: pipe}
	g.gone.Go(func() { _ = cmd.Wait() }) // a guard that is killed leaves the command to its supervisor
	return g, nil
}

// watch names the group to be killed.
func (g *guard) watch(group int, note []byte) {
	line, err := json.Marshal(charge{Group: group, Note: note})
	if err != nil {
		panic("BUG: " + err.Error())
	}
	_, _ = g.pipe.Write(append(line, '\n'))
}

// end ends the guard.
func (g *guard) end() {
	_, _ = io.WriteString(g.pipe, farewell)
	_ = g.pipe.Close()
	g.gone.Wait()
}

// reapLimit bounds the wait for killed processes to be gone.
const reapLimit = 5 * time.Second

// AwaitOrphan is the guard: it reads from the pipe of its supervisor until that ends. If the supervisor has died, it kills the group and
// returns the note when no process of the group is left. nil: there is nothing to do.
func AwaitOrphan(pipe io.Reader) ([]byte, error) {
	signal.Ignore(unix.SIGINT, unix.SIGTERM, unix.SIGHUP, unix.SIGQUIT) // they are for the supervisor, which ends the guard
	lines := bufio.NewReader(pipe)
	first, err := lines.ReadBytes('\n')
	var c charge
	if err != nil || json.Unmarshal(first, &c) != nil || c.Group <= 1 {
		return nil, nil //nolint:nilerr // ended, or the supervisor has died before the command had processes of its own
	}
	if last, _ := lines.ReadString('\n'); last == farewell {
		return nil, nil
	}
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for deadline := time.Now().Add(reapLimit); time.Now().Before(deadline); <-look.C { // the end of a stranger's child is no event
		if !killed(c.Group) || !living(c.Group) {
			return c.Note, nil
		}
	}
	return nil, errors.New("processes of the command are still alive")
}

// killed kills the processes of a group. false: it has none.
func killed(group int) bool { return !errors.Is(unix.Kill(-group, unix.SIGKILL), unix.ESRCH) }
