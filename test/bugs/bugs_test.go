//go:build bugs

package bugs

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

const (
	root    = "../.."
	chaos   = "TestLocksHoldUnderFaults"
	players = 2 // processes that play histories
)

func TestEveryBugIsFound(t *testing.T) {
	patches, err := filepath.Glob("*.patch")
	if err != nil || len(patches) < 41 {
		t.Fatalf("%d patches: %v", len(patches), err)
	}
	for _, patch := range patches {
		t.Run(strings.TrimSuffix(patch, ".patch"), func(t *testing.T) {
			text, err := os.ReadFile(patch)
			if err != nil {
				t.Fatal(err)
			}
			b := &bug{t: t, overlay: overlay(t, patch, string(text))}
			finders := finder.FindAllStringSubmatch(string(text), -1)
			if len(finders) == 0 {
				t.Fatal("nobody claims to find it")
			}
			for _, f := range finders {
				within, err := time.ParseDuration(f[3])
				if err != nil {
					t.Fatal(err)
				}
				b.found(f[1], f[2], within)
			}
		})
	}
}

var (
	finder = regexp.MustCompile(`(?m)^Found by: (\S+?)(?: (\w+))?, within (\S+)$`)
	target = regexp.MustCompile(`(?m)^--- a/(\S+)$`)
	broken = regexp.MustCompile(`check \w+: |seed \d+: [^:\n]+|panic: .*|_test\.go:\d+: [^c].*`)
)

// overlay applies a patch to copies of the files that it changes. It returns a file that has the compiler use the copies.
func overlay(t *testing.T, patch, text string) string {
	dir, replace := t.TempDir(), map[string]string{}
	for _, match := range target.FindAllStringSubmatch(text, -1) {
		from, to := filepath.Join(absolute(t, root), match[1]), filepath.Join(dir, match[1])
		source, err := os.ReadFile(from)
		if err == nil {
			err = os.MkdirAll(filepath.Dir(to), 0o700)
		}
		if err == nil {
			err = os.WriteFile(to, source, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
		replace[from] = to
	}
	apply := exec.Command("git", "apply", "-C1", absolute(t, patch))
	apply.Dir = dir
	// Otherwise git takes the copies for a part of a repository above them, and ignores the patch.
	apply.Env = append(os.Environ(), "GIT_CEILING_DIRECTORIES="+filepath.Dir(dir))
	if out, err := apply.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	content, err := json.Marshal(map[string]any{"Replace": replace})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "overlay.json"), content, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "overlay.json")
}

func absolute(t *testing.T, path string) string {
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// bug is one that was planted.
type bug struct {
	t       *testing.T
	overlay string
}

// found demands that a suite finds the bug.
func (b *bug) found(suite, what string, within time.Duration) {
	b.t.Helper()
	began := time.Now()
	var by []string
	switch suite {
	case "sim":
		test := b.build("internal/lockcmds/sim")
		began = time.Now()
		by = b.play(test, within)
	case "chaos":
		test, program := b.build("test/locks"), "LOCKPROXY_BINARY="+b.build("cmd/lockproxy")
		for range 3 { // it is chance, and on a busy machine it does little
			began = time.Now()
			by = append(by, b.run(b.t.Context(), test, "test/locks", chaos, program, "LOCKPROXY_CHAOS_TIME=15s")...)
			if by = slices.DeleteFunc(by, func(s string) bool { return s != "check "+what+": " }); len(by) > 0 {
				break
			}
		}
	default:
		test := b.build(suite)
		began = time.Now()
		ctx, cancel := context.WithTimeout(b.t.Context(), within)
		defer cancel()
		by = b.run(ctx, test, suite, what)
	}
	took := time.Since(began).Round(100 * time.Millisecond)
	if len(by) == 0 {
		b.t.Errorf("%s %s does not find it in %v", suite, what, took)
		return
	}
	b.t.Logf("%s %s: %s, after %v", suite, what, by[0], took)
}

// build compiles the test of a package, or the program, with the bug in it.
func (b *bug) build(dir string) string {
	b.t.Helper()
	out, mode := filepath.Join(b.t.TempDir(), "bug"), []string{"test", "-c"}
	if strings.HasPrefix(dir, "cmd/") {
		mode = []string{"build"}
	}
	cmd := exec.Command("go", append(mode, "-trimpath", "-overlay", b.overlay, "-o", out, "./"+dir)...)
	cmd.Dir = root
	if text, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("%v\n%s", err, text)
	}
	return out
}

// run runs a test, and returns what has failed.
func (b *bug) run(ctx context.Context, program, dir, test string, env ...string) (failed []string) {
	return b.output(ctx, program, dir, env, "-test.run", "^("+test+")$", "-test.failfast", "-test.timeout", "5m")
}

// output runs a program, and returns what it says has failed.
func (b *bug) output(ctx context.Context, program, dir string, env []string, args ...string) (failed []string) {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = filepath.Join(root, dir)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		return nil
	}
	for _, match := range broken.FindAllString(string(out), -1) {
		failed = append(failed, strings.TrimPrefix(match, "_test.go:"))
	}
	if failed == nil && strings.Contains(string(out), "--- FAIL: ") {
		return []string{"it fails"}
	}
	if failed == nil {
		b.t.Errorf("it ended without a word: %v\n%s", err, out[:min(len(out), 2000)])
	}
	return failed
}

// play plays histories of new seeds until one breaks a rule.
func (b *bug) play(program string, within time.Duration) (first []string) {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	var mu sync.Mutex // guards first
	var all sync.WaitGroup
	args := []string{"-test.run", "^TestHistories", "-test.failfast", "-test.timeout", "5m", "-sim.time"}
	args = append(args, within.String())
	for range players {
		all.Go(func() {
			by := b.output(ctx, program, "internal/lockcmds/sim", nil, args...)
			mu.Lock()
			defer mu.Unlock()
			if len(by) > 0 && len(first) == 0 {
				first = by
				cancel()
			}
		})
	}
	all.Wait()
	return first
}
