package waiters

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
)

func TestKindOfAVerb(t *testing.T) {
	for verb, waits := range map[grammar.Verb]*queue.Kind{grammar.Lock: queue.Plain, grammar.TryLock: queue.Plain, grammar.FairLock: queue.Fair} {
		if k := kindOf(verb); k.waits != waits || (k.lead == nil) != waits.OwnPlace {
			t.Errorf("%s: %+v", verb, k)
		}
	}
}

// The first of the plain waiters asks for all of them, so it asks by crowd.lua; a fair one asks for itself.
func TestTheScriptOfAnAttempt(t *testing.T) {
	for line, want := range map[string]string{"LOCK k": "crowd", "FAIRLOCK k": "fair"} {
		w := newWorld(t)
		w.waits(1, line)
		w.asked = nil
		w.x.Wake("k")
		w.work()
		if len(w.asked) != 1 || w.asked[0] != want {
			t.Errorf("%s: %q", line, w.asked)
		}
	}
}
