package lockcmds

import (
	"strconv"
	"strings"
	"testing"
	"time"
)

// What our clock says is lost, and Redis may have left, is dropped. What Redis says is gone needs no drop.
func TestALossIsToldOnceAndTheRestIsDropped(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(g *holdGrant)
		redis  any // the answer to a renewal
		reason string
		drops  bool
	}{
		{"no renewal succeeds", nil, nil, "deadline", true},
		{"a fixed lease", func(g *holdGrant) { g.Fixed = true }, nil, "expired", true},
		{"a limit", func(g *holdGrant) { g.MaxHold = 5 * time.Second }, nil, "max-hold", true},
		{"Redis does not have it", nil, isGone, "gone", false},
	} {
		w, a, b := newLockWorld(t), newClient(1), newClient(2)
		w.acquire(t, a, "me", c.change)
		h := w.acquire(t, b, "me", func(g *holdGrant) {
			g.Count = 2
			if c.change != nil {
				c.change(g)
			}
		})
		for range 12 {
			w.Own.Answers = nil
			if c.redis != nil {
				w.Own.Answers = []any{c.redis}
			}
			w.pass(t, 3*time.Second)
		}
		fields := map[string]bool{}
		for i, name := range w.Own.Asked {
			if args := w.Own.Args[i]; name == "drop" && args[argFence] == strconv.Itoa(fence) && args[argGrace] == "0" && args[argLess] == "1" && args[argRemember] == "1" {
				fields[args[argField]] = true
			}
		}
		if got := strings.Join(w.lost, " "); got != c.reason || c.drops && len(fields) != 2 || !c.drops && len(fields) > 0 {
			t.Errorf("%s: losses %q, the parts of %d sessions are dropped", c.name, got, len(fields))
		}
		for _, s := range []*holdClient{a, b} {
			if len(s.Pushes) != 1 || !strings.Contains(s.Pushes[0], " "+c.reason+"]") {
				t.Errorf("%s: told %q", c.name, s.Pushes)
			}
		}
		if w.table.Knows(&h.Hold) || w.Holds() != 0 {
			t.Errorf("%s: the hold goes on", c.name)
		}
	}
}

func TestLossReasonsAreAllReasons(t *testing.T) {
	if got := strings.Join(LossReasons(), " "); got != "gone deadline expired max-hold forced" {
		t.Errorf("%q", got)
	}
}
