//go:build interop

package interop

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// root is the top of the source tree as seen from this package's directory, where go test runs its tests.
const root = ".."

var (
	program string // path of the built lockproxy
	cache   string // absolute; holds what is downloaded and built, kept between runs
)

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		os.Exit(1)
	}
	_ = flag.Set("test.parallel", "4") // programs of clients wait for leases more than they compute
	os.Exit(m.Run())
}

// prepare builds the program, unless LOCKPROXY_BINARY names one, and creates the cache.
func prepare() error {
	var err error
	if cache = os.Getenv("LOCKPROXY_INTEROP_CACHE"); cache == "" {
		cache = filepath.Join(root, ".cache", "interop")
	}
	if cache, err = filepath.Abs(cache); err != nil {
		return err
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return err
	}
	if program = os.Getenv("LOCKPROXY_BINARY"); program != "" {
		return nil
	}
	program = filepath.Join(cache, "lockproxy")
	build := exec.Command("go", "build", "-o", program, "./cmd/lockproxy")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build lockproxy: %w\n%s", err, out)
	}
	return nil
}
