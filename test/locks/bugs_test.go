//go:build bugs

package locks

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestEveryBugIsCaught puts one deliberate bug after the other into a copy of the tree and runs the tests that claim
// to catch it, and a short chaos test. It writes what caught what into README.md. A bug that nothing catches means
// that a check is missing.
func TestEveryBugIsCaught(t *testing.T) {
	patches, err := filepath.Glob("bugs/*.patch")
	if err != nil || len(patches) == 0 {
		t.Fatalf("no patches: %v", err)
	}
	rows := make(map[string]string)
	for _, path := range patches {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".patch"), func(t *testing.T) {
			b := readBug(t, path)
			caught := catch(t, b, plant(t, path))
			rows[path] = fmt.Sprintf("| `%s` | %s | %s |\n", filepath.Base(path), b.what, strings.Join(caught, ", "))
			for _, name := range b.by {
				if !slices.Contains(caught, name) {
					t.Errorf("%s: not caught by %s, but by %v", b.what, name, caught)
				}
			}
			t.Logf("%s: caught by %v", b.what, caught)
		})
	}
	if len(rows) == len(patches) && !t.Failed() {
		table := "| Patch | Bug | Caught by |\n|---|---|---|\n"
		for _, path := range patches {
			table += rows[path]
		}
		writeTable(t, "README.md", table)
	}
}

// bug is the head of a patch file.
type bug struct {
	what string
	by   []string // tests, and "chaos <check>"
}

func readBug(t *testing.T, path string) (b bug) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if rest, ok := strings.CutPrefix(line, "Bug: "); ok {
			b.what = rest
		}
		if rest, ok := strings.CutPrefix(line, "Caught by: "); ok {
			b.by = strings.Split(rest, ", ")
		}
	}
	if b.what == "" || len(b.by) == 0 {
		t.Fatalf("%s: no Bug: or Caught by: line", path)
	}
	return b
}

// plant builds the program with the bug in it.
func plant(t *testing.T, patch string) (program string) {
	t.Helper()
	tree := t.TempDir()
	for _, part := range []string{"cmd", "internal"} {
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
	patch, err := filepath.Abs(patch)
	if err != nil {
		t.Fatal(err)
	}
	program = filepath.Join(tree, "lockproxy")
	for _, args := range [][]string{{"git", "apply", patch}, {"go", "build", "-o", program, "./cmd/lockproxy"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	return program
}

var (
	failedTest  = regexp.MustCompile(`(?m)^--- FAIL: (\w+)`)
	failedCheck = regexp.MustCompile(`check (\w+): `)
)

// catch runs the tests on the program and returns which of them failed, the chaos test by its checks.
func catch(t *testing.T, b bug, program string) (caught []string) {
	t.Helper()
	names := []string{"TestLocksHoldUnderFaults"}
	for _, name := range b.by {
		if strings.HasPrefix(name, "Test") {
			names = append(names, name)
		}
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^("+strings.Join(names, "|")+")$", "-test.v", "-test.timeout", "5m")
	cmd.Env = append(os.Environ(), "LOCKPROXY_BINARY="+program, "LOCKPROXY_CHAOS_TIME=15s")
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Errorf("%s: nothing caught it", b.what)
	}
	for _, match := range failedTest.FindAllSubmatch(out, -1) {
		if name := string(match[1]); name != "TestLocksHoldUnderFaults" {
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

// writeTable replaces what is between the two marks.
func writeTable(t *testing.T, path, table string) {
	t.Helper()
	const from, to = "<!-- what catches what -->\n", "<!-- end -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := bytes.Cut(text, []byte(from))
	_, tail, ok2 := bytes.Cut(rest, []byte(to))
	if !ok1 || !ok2 {
		t.Fatalf("%s: no marks for the table", path)
	}
	text = slices.Concat(head, []byte(from+table+to), tail)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}
