package sim

import (
	"os/exec"
	"path/filepath"
	"testing"
)

// TestBugsCanBePlanted keeps the patches in step with the code. `make sim-bugs` plants them, now and then.
func TestBugsCanBePlanted(t *testing.T) {
	patches, err := filepath.Glob("bugs/*.patch")
	if err != nil || len(patches) < 8 {
		t.Fatalf("%d patches: %v", len(patches), err)
	}
	git, err := exec.LookPath("git")
	if err != nil {
		t.Skip("no git")
	}
	for _, path := range patches {
		cmd := exec.CommandContext(t.Context(), git, "apply", "--check", filepath.Join("internal/lockcmds/sim", path))
		cmd.Dir = "../../.."
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", path, err, out)
		}
	}
}
