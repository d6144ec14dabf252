package redistest_test

import (
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

const childEnv = "LOCKPROXY_REDISTEST_CHILD"

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestServerIsGoneWhenItsTestEnds(t *testing.T) {
	var pid int
	var dir string
	t.Run("inner", func(t *testing.T) {
		s := redistest.Start(t)
		pid, dir = s.Pid(), s.Dir()
	})
	if pid == 0 {
		t.Skip("the server did not start")
	}
	if alive(pid) {
		t.Errorf("server %d lives on", pid)
	}
	if _, err := os.Stat(dir); !os.IsNotExist(err) {
		t.Errorf("its directory is still there: %v", err)
	}
}

func TestServerDiesWithAKilledTestBinary(t *testing.T) {
	if os.Getenv(childEnv) != "" {
		s := redistest.Start(t)
		os.Stdout.WriteString("pid " + strconv.Itoa(s.Pid()) + "\n")
		select {} // until the parent kills us
	}
	if runtime.GOOS != "linux" {
		t.Skip("only Linux ties the server's life to the test binary's")
	}
	redistest.Start(t)                        // skips this test if there is no Redis
	dir, err := os.MkdirTemp("", "redistest") // for what the child cannot clean up
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), childEnv+"=1", "TMPDIR="+dir)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 64)
	n, err := out.Read(b)
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(strings.TrimPrefix(string(b[:n]), "pid ")))
	if err != nil {
		t.Fatalf("child said %q", b[:n])
	}
	redistest.Eventually(t, 10*time.Second, "the orphan to die", func() bool { return !alive(pid) })
}

// alive reports whether the process exists and is no zombie: in a container nobody may reap an orphan.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err != nil || !strings.Contains(string(stat), ") Z ")
}
