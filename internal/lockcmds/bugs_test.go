//go:build bugs

package lockcmds

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/planted"
)

// TestEveryBugIsCaught puts one deliberate bug after the other into a copy of the tree, and runs the test that claims to
// catch it. These are bugs of what the simulation does not have: sessions whose acquires are owners of their own, several
// locks whose names begin alike, and permits of named owners. Others cost a wait that it does not judge.
func TestEveryBugIsCaught(t *testing.T) {
	for _, path := range planted.Patches(t, 4, "bugs") {
		t.Run(planted.Name(path), func(t *testing.T) {
			what, by := planted.Head(t, path, "Bug"), planted.Head(t, path, "Caught by")
			dir, in := "internal/lockcmds", by
			if test, ok := strings.CutPrefix(by, "script."); ok {
				dir, in = "internal/lockcmds/script", test
			}
			tree := planted.Tree(t, "../..", path, []string{"internal"}, "test", "-c", "-o", "lockcmds.test", "./"+dir)
			cmd := exec.CommandContext(t.Context(), filepath.Join(tree, "lockcmds.test"), "-test.run", "^"+in+"$", "-test.failfast", "-test.timeout", "1m")
			cmd.Dir = filepath.Join(tree, dir)
			if out, err := cmd.CombinedOutput(); err == nil {
				t.Errorf("%s: not caught by %s\n%s", what, by, out)
			}
		})
	}
}
