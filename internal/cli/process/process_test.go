//go:build unix

package process

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// guardName is the first argument of this program as a guard.
const guardName = "guard of a test"

func TestMain(m *testing.M) {
	if os.Args[0] == guardName {
		note, err := AwaitOrphan(os.Stdin)
		switch {
		case err != nil:
			os.Exit(2)
		case note != nil:
			_, _ = os.Stdout.Write(note)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if err := os.Setenv("GORACE", "atexit_sleep_ms=0"); err != nil { // or each guard ends a second late under the race detector
		panic(err)
	}
	os.Exit(m.Run())
}

const limit = 20 * time.Second // of a test for an event

// group starts two processes in a group of their own. Their end closes the channel.
func group(t *testing.T) (id int, ended <-chan struct{}) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("sh", "-c", "sleep 600 & echo; wait")
	cmd.Stdout = in
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	in.Close()
	if _, err := out.Read(make([]byte, 1)); err != nil { // the group has both
		t.Fatal(err)
	}
	over := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, out) // until neither has it open
		close(over)
	}()
	t.Cleanup(func() {
		_ = unix.Kill(-cmd.Process.Pid, unix.SIGKILL)
		_ = cmd.Wait() // not before: a process that was not waited for is still of the group
		<-over
		out.Close()
	})
	return cmd.Process.Pid, over
}

func gone(t *testing.T, ended <-chan struct{}) {
	t.Helper()
	select {
	case <-ended:
	case <-time.After(limit):
		t.Fatal("a process of the group is alive")
	}
}

// awaitOrphan has a guard read a text. It returns the note and the exit code.
func awaitOrphan(t *testing.T, text string) (note string, code int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := &exec.Cmd{Path: self, Args: []string{guardName}, Stdin: strings.NewReader(text)}
	b, err := cmd.Output()
	if cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return string(b), cmd.ProcessState.ExitCode()
}

func chargeOf(t *testing.T, group int) string {
	t.Helper()
	line, err := json.Marshal(charge{Group: group, Note: []byte("note")})
	if err != nil {
		t.Fatal(err)
	}
	return string(line) + "\n"
}

func TestAnOrphanedGroupIsKilled(t *testing.T) {
	for name, end := range map[string]string{"nothing": "", "half of a farewell": farewell[:2]} {
		t.Run(name, func(t *testing.T) {
			id, ended := group(t)
			if note, code := awaitOrphan(t, chargeOf(t, id)+end); note != "note" || code != 1 {
				t.Errorf("%q, %d", note, code)
			}
			gone(t, ended)
		})
	}
}

func TestAGuardHarmsNoGroupWithoutNeed(t *testing.T) {
	id, ended := group(t)
	for name, text := range map[string]string{
		"a farewell":       chargeOf(t, id) + farewell,
		"half of a charge": strings.TrimSuffix(chargeOf(t, id), "\n"),
		"no charge":        "",
		"no group":         farewell,
	} {
		if note, code := awaitOrphan(t, text); note != "" || code != 0 {
			t.Errorf("%s: %q, %d", name, note, code)
		}
	}
	select {
	case <-ended:
		t.Error("the group was killed")
	default:
	}
}

func TestAGuardActsWhenThePipeEnds(t *testing.T) {
	id, ended := group(t)
	g, err := startGuard([]string{guardName})
	if err != nil {
		t.Fatal(err)
	}
	g.watch(id, []byte("note"))
	g.pipe.Close() // as at the end of the supervisor
	gone(t, ended)
	g.gone.Wait()
	if g.cmd.ProcessState.ExitCode() != 1 {
		t.Error("the guard has returned no note")
	}
}

func start(t *testing.T, script string) *Command {
	t.Helper()
	c, err := Start(Options{
		Path: "/bin/sh", Args: []string{"sh", "-c", script}, Guard: []string{guardName}, Note: []byte("note"), MayGoOn: func() bool { return true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func exit(t *testing.T, c *Command) Exit {
	t.Helper()
	select {
	case e := <-c.Ended():
		if code := c.guard.cmd.ProcessState.ExitCode(); code != 0 {
			t.Errorf("the guard has ended with %d", code)
		}
		return e
	case <-time.After(limit):
		c.Kill()
		t.Fatal("the command has not ended")
		return Exit{}
	}
}

func TestTheExitOfACommand(t *testing.T) {
	if e := exit(t, start(t, "exit 3")); e != (Exit{Code: 3}) {
		t.Errorf("its own code: %+v", e)
	}
	if e := exit(t, start(t, "kill -USR1 $$")); e != (Exit{Code: CodeOf(unix.SIGUSR1), Signal: unix.SIGUSR1}) {
		t.Errorf("a signal: %+v", e)
	}
}

func TestTheGroupGetsTheSignal(t *testing.T) {
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout := os.Stdout
	os.Stdout = in // the command has the standard files of this process
	c := start(t, "sleep 600 & echo ready; wait")
	os.Stdout = stdout
	in.Close()
	ready := make([]byte, 6)
	if _, err := io.ReadFull(out, ready); err != nil || !bytes.Equal(ready, []byte("ready\n")) {
		t.Fatalf("%q, %v", ready, err)
	}
	if err := c.Signal(unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if e := exit(t, c); e.Signal != unix.SIGTERM || e.Code != 143 {
		t.Errorf("%+v", e)
	}
	_ = out.SetReadDeadline(time.Now().Add(limit))
	if n, err := out.Read(ready); n != 0 || err != io.EOF {
		t.Errorf("the second process is alive: %v", err)
	}
}
