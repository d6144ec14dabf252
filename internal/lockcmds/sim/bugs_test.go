//go:build bugs

package sim

import (
	"context"
	"os/exec"
	"path/filepath"
	"regexp"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/planted"
)

// hunt is how long the simulation has to find a bug, in two processes: one for each core.
const (
	hunt    = 55 * time.Second
	hunters = 2
)

var brokenRule = regexp.MustCompile(`seed (\d+): ([^:\n]+):`)

// TestEveryBugIsFound puts one deliberate bug after the other into a copy of the tree, and plays histories until a rule
// is broken.
func TestEveryBugIsFound(t *testing.T) {
	patches := planted.Patches(t, 20, "bugs", root+"/test/locks/bugs", root+"/test/locks/bugs/limit")
	for _, path := range patches {
		t.Run(planted.Name(path), func(t *testing.T) {
			what := planted.Head(t, path, "Bug")
			rule, seed, took := find(t, path)
			if rule == "" {
				t.Errorf("%s: not found in %v", what, hunt)
				return
			}
			t.Logf("%s: %s, after %v (seed %s)", what, rule, took.Round(100*time.Millisecond), seed)
		})
	}
}

// find plays histories of new seeds with the bug planted.
func find(t *testing.T, patch string) (rule, seed string, took time.Duration) {
	t.Helper()
	tree := planted.Tree(t, root, patch, []string{"internal"}, "test", "-c", "-o", "sim.test", "./internal/lockcmds/sim")
	start := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	outs := make(chan []byte, hunters)
	for range hunters {
		cmd := exec.CommandContext(ctx, filepath.Join(tree, "sim.test"), "-test.run", "^TestHistories", "-test.failfast", "-test.timeout", "5m", "-sim.time", hunt.String())
		cmd.Dir = filepath.Join(tree, "internal/lockcmds/sim")
		go func() {
			out, err := cmd.CombinedOutput()
			if err != nil && ctx.Err() == nil && !brokenRule.Match(out) { // a bug may also end the process, as a deadlock does
				t.Errorf("the simulation ended without a broken rule: %v\n%s", err, out[:min(len(out), 2000)])
			}
			outs <- out
		}()
	}
	for range hunters {
		if match := brokenRule.FindSubmatch(<-outs); match != nil && rule == "" {
			rule, seed, took = string(match[2]), string(match[1]), time.Since(start)
			cancel()
		}
	}
	return rule, seed, took
}
