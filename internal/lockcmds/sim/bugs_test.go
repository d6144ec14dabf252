//go:build bugs

package sim

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const root = "../../.."

// hunt is how long the simulation has to find a bug.
const hunt = 55 * time.Second

var brokenRule = regexp.MustCompile(`seed (\d+): ([^:\n]+):`)

// TestEveryBugIsFound puts one deliberate bug after the other into a copy of the tree, and plays histories until a rule is broken. It
// writes the table of what was found into test/locks/README.md.
func TestEveryBugIsFound(t *testing.T) {
	var patches []string
	for _, dir := range []string{"bugs/*.patch", root + "/test/locks/bugs/*.patch"} {
		found, err := filepath.Glob(dir)
		if err != nil {
			t.Fatal(err)
		}
		patches = append(patches, found...)
	}
	rows := map[string]string{}
	for _, path := range patches {
		name := strings.TrimSuffix(filepath.Base(path), ".patch")
		t.Run(name, func(t *testing.T) {
			what := title(t, path)
			rule, seed, took := find(t, path)
			if rule == "" {
				t.Errorf("%s: not found in %v", what, hunt)
				return
			}
			t.Logf("%s: %s, after %v (seed %s)", what, rule, took.Round(100*time.Millisecond), seed)
			rows[path] = fmt.Sprintf("| `%s` | %s | %s | %.1f s |\n", filepath.Base(path), what, rule, took.Seconds())
		})
	}
	if t.Failed() || len(rows) < len(patches) { // -run may have named some of them only
		return
	}
	table := "| Patch | Bug | Rule that it breaks | Found after |\n|---|---|---|---|\n"
	for _, path := range patches {
		table += rows[path]
	}
	writeTable(t, filepath.Join(root, "test/locks/README.md"), table)
}

func title(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(text), "\n")
	what, ok := strings.CutPrefix(first, "Bug: ")
	if !ok {
		t.Fatalf("%s has no Bug: line", path)
	}
	return what
}

// find plays histories of new seeds with the bug planted.
func find(t *testing.T, patch string) (rule, seed string, took time.Duration) {
	t.Helper()
	tree := t.TempDir()
	if err := os.CopyFS(filepath.Join(tree, "internal"), os.DirFS(filepath.Join(root, "internal"))); err != nil {
		t.Fatal(err)
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
	for _, args := range [][]string{{"git", "apply", patch}, {"go", "test", "-c", "-o", "sim.test", "./internal/lockcmds/sim"}} {
		cmd := exec.Command(args[0], args[1:]...)
		cmd.Dir = tree
		cmd.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(tree))
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", args, err, out)
		}
	}
	start := time.Now()
	cmd := exec.Command(filepath.Join(tree, "sim.test"), "-test.run", "^TestHistories$", "-test.timeout", "5m", "-sim.time", hunt.String())
	cmd.Dir = filepath.Join(tree, "internal/lockcmds/sim")
	out, err := cmd.CombinedOutput()
	if match := brokenRule.FindSubmatch(out); match != nil {
		return string(match[2]), string(match[1]), time.Since(start)
	}
	if err != nil { // a bug may also crash the engine
		_, text, _ := bytes.Cut(out, []byte("panic: "))
		line, _, _ := bytes.Cut(text, []byte("\n"))
		return "no panic (" + string(line) + ")", "", time.Since(start)
	}
	return "", "", 0
}

// writeTable replaces what is between the two marks.
func writeTable(t *testing.T, path, table string) {
	t.Helper()
	const from, to = "<!-- what the simulation finds -->\n", "<!-- end of that -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	head, rest, ok1 := strings.Cut(string(text), from)
	_, tail, ok2 := strings.Cut(rest, to)
	if !ok1 || !ok2 {
		t.Fatalf("%s: no marks for the table", path)
	}
	if err := os.WriteFile(path, []byte(head+from+table+to+tail), 0o644); err != nil {
		t.Fatal(err)
	}
}
