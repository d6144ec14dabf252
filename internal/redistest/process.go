package redistest

import (
	"os/exec"
	"runtime"
	"syscall"
	"testing"
	"time"
)

// Process is one run of a program. On Linux it ends with the test binary, even if that is killed.
type Process struct {
	Cmd    *exec.Cmd
	Exited chan struct{} // closed when the process has been reaped
	Err    error         // of Wait; read after Exited is closed
}

// StartProcess runs a command. One goroutine waits for its end, on the thread that has started it: Linux ties Pdeathsig
// to that thread.
func StartProcess(cmd *exec.Cmd) (*Process, error) {
	cmd.SysProcAttr = processAttributes()
	p := &Process{Cmd: cmd, Exited: make(chan struct{})}
	started := make(chan error, 1)
	go p.superviseLocked(started)
	if err := <-started; err != nil {
		return nil, err
	}
	return p, nil
}

func (p *Process) superviseLocked(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.Cmd.Start()
	started <- err
	if err != nil {
		return
	}
	p.Err = p.Cmd.Wait()
	close(p.Exited)
}

// Pid is the id of the process.
func (p *Process) Pid() int { return p.Cmd.Process.Pid }

// Running reports whether the process has not ended.
func (p *Process) Running() bool {
	select {
	case <-p.Exited:
		return false
	default:
		return true
	}
}

// Signal sends a signal. A process that has ended ignores it.
func (p *Process) Signal(sig syscall.Signal) { _ = p.Cmd.Process.Signal(sig) }

// Kill ends the process as a crash would, also one that is stopped, and returns when it is gone.
func (p *Process) Kill() {
	p.Signal(syscall.SIGKILL)
	<-p.Exited
}

// Exit waits for the end of the process and returns its exit code.
func (p *Process) Exit(t testing.TB, limit time.Duration) int {
	t.Helper()
	select {
	case <-p.Exited:
	case <-time.After(limit):
		p.Kill()
		t.Fatalf("redistest: the process did not end within %v", limit)
	}
	return p.Cmd.ProcessState.ExitCode()
}
