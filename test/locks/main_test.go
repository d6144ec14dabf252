package locks

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

// root is the top of the source tree as seen from this package's directory, where go test runs its tests.
const root = "../.."

// childEnv names the part that this binary plays when it is re-executed as a client process.
const childEnv = "LOCKPROXY_TEST_CHILD"

func TestMain(m *testing.M) {
	switch role := os.Getenv(childEnv); role {
	case "":
	case "worker":
		os.Exit(workerMain(os.Getenv(workerEnv)))
	default:
		fmt.Fprintln(os.Stderr, "no such role:", role)
		os.Exit(2)
	}
	ants.Release()                     // importing ants starts a pool of its own
	_ = flag.Set("test.parallel", "8") // parallel tests wait for leases to end; the command line may say another number
	code := m.Run()
	if built.dir != "" {
		_ = os.RemoveAll(built.dir)
	}
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// built is the program under test, built once per run.
var built struct {
	once sync.Once
	dir  string // removed by TestMain
	path string
	err  error
}

// program returns the path of lockproxy. It is built with the race detector if this test is.
func program(t testing.TB) string {
	t.Helper()
	built.once.Do(func() {
		if built.path = os.Getenv("LOCKPROXY_BINARY"); built.path != "" {
			built.path, built.err = filepath.Abs(built.path)
			return
		}
		if built.dir, built.err = os.MkdirTemp("", "lockproxy"); built.err != nil {
			return
		}
		built.path = filepath.Join(built.dir, "lockproxy")
		args := []string{"build", "-o", built.path}
		if raceEnabled {
			args = append(args, "-race")
		}
		cmd := exec.Command("go", append(args, "./cmd/lockproxy")...)
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			built.err = fmt.Errorf("build lockproxy: %w\n%s", err, out)
		}
	})
	if built.err != nil {
		t.Fatal(built.err)
	}
	return built.path
}
