package fleet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

const (
	startLimit = 20 * time.Second      // for a server to answer on a loaded machine
	probeEvery = 10 * time.Millisecond // between two questions to a server that is not there yet
)

// Process is one running program.
type Process struct {
	cmd    *exec.Cmd
	log    string        // path of what it printed
	exited chan struct{} // closed when it has been reaped
}

// startProcess runs a program with its output in a file of dir.
func startProcess(dir, name, bin string, args ...string) (*Process, error) {
	path := filepath.Join(dir, name+".log")
	log, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	defer log.Close()
	p := &Process{cmd: exec.Command(bin, args...), log: path, exited: make(chan struct{})}
	p.cmd.Dir, p.cmd.Stdout, p.cmd.Stderr = dir, log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	started := make(chan error, 1)
	go p.supervise(started)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

func (p *Process) supervise(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := p.cmd.Start()
	started <- err
	if err == nil {
		_ = p.cmd.Wait() // how it ended is not asked
		close(p.exited)
	}
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Kill ends the process as kill -9 does and waits for that.
func (p *Process) Kill() {
	_ = p.cmd.Process.Kill() // it may have ended
	<-p.exited
}

// Freeze stops the process as SIGSTOP does: its connections stay open.
func (p *Process) Freeze() error { return p.cmd.Process.Signal(syscall.SIGSTOP) }

// tail is the end of what the process printed.
func (p *Process) tail() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return strings.TrimSpace(string(text[max(0, len(text)-1000):]))
}

// answers waits until the process answers a PING at addr.
func (p *Process) answers(ctx context.Context, addr string) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	for {
		err := ping(addr)
		if err == nil {
			return nil
		}
		select {
		case <-p.exited:
			return fmt.Errorf("it ended: %s", p.tail())
		case <-ctx.Done():
			return fmt.Errorf("no PONG: %w: %s", err, p.tail())
		case <-time.After(probeEvery):
		}
	}
}

func ping(addr string) error {
	reply, err := Do(addr, "PING")
	if err == nil && reply != "+PONG" {
		err = errors.New(reply)
	}
	return err
}
