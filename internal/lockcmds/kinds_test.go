package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/queue"
)

func TestKindOfAVerb(t *testing.T) {
	for verb, waits := range map[grammar.Verb]*queue.Kind{grammar.Lock: queue.Plain, grammar.TryLock: queue.Plain, grammar.FairLock: queue.Fair} {
		if k := kindOf(verb); k.Waits != waits || (k.lead == nil) != waits.OwnPlace {
			t.Errorf("%s: %+v", verb, k)
		}
	}
}
