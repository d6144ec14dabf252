// Package planted puts deliberate bugs into copies of the source tree. A test of the tests then demands that they fail.
// A bug is a patch file. The lines at its head say what it is: "Bug: …" and others.
package planted

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// Patches lists the patch files of some directories, those of each in the order of their names. Fewer than least of
// them end the test.
func Patches(t testing.TB, least int, dirs ...string) []string {
	t.Helper()
	var all []string
	for _, dir := range dirs {
		found, err := filepath.Glob(filepath.Join(dir, "*.patch"))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, found...)
	}
	if len(all) < least {
		t.Fatalf("%d patches in %v, want %d at least", len(all), dirs, least)
	}
	return all
}

// Name is the name of a patch.
func Name(patch string) string { return strings.TrimSuffix(filepath.Base(patch), ".patch") }

// Head is what a patch says of itself in the line "key: …". A patch without that line ends the test.
func Head(t testing.TB, patch, key string) string {
	t.Helper()
	text, err := os.ReadFile(patch)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), key+": "); ok {
			return value
		}
	}
	t.Fatalf("%s: no %s: line", patch, key)
	return ""
}

// Fits fails the test for each patch that git cannot apply to the tree at root. The test is skipped on a machine
// without git.
func Fits(t testing.TB, root string, patches []string) {
	t.Helper()
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip("no git")
	}
	for _, patch := range patches {
		cmd := exec.CommandContext(t.Context(), "git", "apply", "--check", absolute(t, patch))
		cmd.Dir = root
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", patch, err, out)
		}
	}
}

// Tree copies parts of the tree at root, with its go.mod, applies a patch to the copy and runs the go command there. It
// returns the copy's directory, which ends with the test.
func Tree(t testing.TB, root, patch string, parts []string, goArgs ...string) string {
	t.Helper()
	tree := t.TempDir()
	for _, part := range parts {
		if err := os.CopyFS(filepath.Join(tree, part), os.DirFS(filepath.Join(root, part))); err != nil {
			t.Fatal(err)
		}
	}
	for _, file := range []string{"go.mod", "go.sum"} {
		text, err := os.ReadFile(filepath.Join(root, file))
		if err == nil {
			err = os.WriteFile(filepath.Join(tree, file), text, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{{"git", "apply", absolute(t, patch)}, append([]string{"go"}, goArgs...)} {
		cmd := exec.CommandContext(t.Context(), args[0], args[1:]...)
		cmd.Dir = tree
		// Otherwise git takes the tree for a part of a repository above it, and ignores the patch.
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return tree
}

func absolute(t testing.TB, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}
