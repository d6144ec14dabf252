//go:build bugs

package locks

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/planted"
)

// TestEveryBugIsCaught puts one deliberate bug after the other into a copy of the tree and runs the tests that claim
// to catch it, and a short chaos test unless one of them is a long one. A bug that nothing catches means that a check is
// missing.
func TestEveryBugIsCaught(t *testing.T) {
	patches := planted.Patches(t, 24, "bugs", "bugs/cluster", "bugs/kinds", "bugs/limit")
	for _, path := range patches {
		t.Run(planted.Name(path), func(t *testing.T) {
			b := bug{what: planted.Head(t, path, "Bug"), by: strings.Split(planted.Head(t, path, "Caught by"), ", ")}
			program, caught := plant(t, path), []string(nil)
			missed := func(name string) bool { return !slices.Contains(caught, name) }
			runs := 1
			if slices.ContainsFunc(b.by, func(name string) bool { return strings.HasPrefix(name, "chaos ") }) {
				runs = 3 // chaos is chance, and on a busy machine it does little
			}
			for ; runs > 0 && slices.ContainsFunc(b.by, missed); runs-- {
				caught = append(caught, catch(t, b, program)...)
			}
			caught = slices.Compact(slices.Sorted(slices.Values(caught)))
			for _, name := range b.by {
				if missed(name) {
					t.Errorf("%s: not caught by %s, but by %v", b.what, name, caught)
				}
			}
			t.Logf("%s: caught by %v", b.what, caught)
		})
	}
}

// bug is the head of a patch file.
type bug struct {
	what string
	by   []string // tests, and "chaos <check>"
}

// plant builds the program with the bug in it.
func plant(t *testing.T, patch string) (program string) {
	t.Helper()
	return filepath.Join(planted.Tree(t, root, patch, []string{"cmd", "internal"}, "build", "-o", "lockproxy", "./cmd/lockproxy"), "lockproxy")
}

var (
	failedTest  = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	failedCheck = regexp.MustCompile(`check (\w+): `)
)

// catch runs the tests on the program and returns which of them failed, the chaos test by its checks.
func catch(t *testing.T, b bug, program string) (caught []string) {
	t.Helper()
	const short = "TestLocksHoldUnderFaults"
	names, chaos := []string{short}, "15s"
	for _, name := range b.by {
		if strings.HasPrefix(name, "TestLocksHold") { // its faults come one by one, and take seconds
			names, chaos = slices.DeleteFunc(names, func(name string) bool { return name == short }), "40s"
		}
		if strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^("+strings.Join(names, "|")+")$", "-test.v", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), "LOCKPROXY_BINARY="+program, "LOCKPROXY_CHAOS_TIME="+chaos)
	out, _ := cmd.CombinedOutput() // the tests should fail
	for _, match := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(match[1]); name != short {
			caught = append(caught, name)
		}
	}
	for _, match := range failedCheck.FindAllSubmatch(out, -1) {
		if name := "chaos " + string(match[1]); !slices.Contains(caught, name) {
			caught = append(caught, name)
		}
	}
	if len(caught) == 0 {
		t.Logf("%s", out)
	}
	return caught
}
