package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/panjf2000/ants/v2"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/goleak"
)

// TestMain makes the test binary stand in for lockproxy where a script calls it.
func TestMain(m *testing.M) {
	testscript.Main(leakChecked{m}, map[string]func(){"lockproxy": main, "fatal": fatal})
}

// leakChecked fails a run that leaves goroutines behind.
type leakChecked struct{ m *testing.M }

func (l leakChecked) Run() int {
	ants.Release()                      // the pool that importing ants starts
	if signal.Ignored(syscall.SIGHUP) { // under nohup(1): the programs that tests start must not inherit it
		signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP)
	}
	code := l.m.Run()
	if code != 0 {
		return code
	}
	if err := goleak.Find(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// TestScripts runs the program as its users do: each testdata/script/*.txtar is one session in a shell.
func TestScripts(t *testing.T) {
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script",
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"exits":   exits,
			"serving": serving,
		},
	})
}

// exits is a script command: `exits 2 lockproxy args...` runs a program and demands its exit code.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits code program [args...]")
	}
	err := ts.Exec(args[1], args[2:]...)
	got := "0"
	if err != nil {
		var exit *exec.ExitError
		if !errors.As(err, &exit) {
			ts.Fatalf("%v", err)
		}
		got = strconv.Itoa(exit.ExitCode())
	}
	if got != args[0] {
		ts.Fatalf("exit code %s, want %s", got, args[0])
	}
}

// serving is a script command: `serving unix:p.sock` waits until a proxy accepts connections there.
func serving(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: serving address")
	}
	network, addr, err := splitAddress(args[0])
	ts.Check(err)
	if network == "unix" {
		addr = ts.MkAbs(addr)
	}
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial(network, addr)
		if err == nil {
			conn.Close()
			return
		}
		if time.Now().After(deadline) {
			ts.Fatalf("nobody serves %s: %v", args[0], err)
		}
		time.Sleep(5 * time.Millisecond) // between two attempts; there is no event to wait for
	}
}
