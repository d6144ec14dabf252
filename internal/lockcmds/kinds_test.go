package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/grammar"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

func TestKindOfAVerb(t *testing.T) {
	for verb, waits := range map[grammar.Verb]*table.Kind{grammar.Lock: table.Plain, grammar.TryLock: table.Plain, grammar.FairLock: table.Fair} {
		if k := kindOf(verb); k.Waits != waits || (k.lead == nil) != waits.OwnPlace {
			t.Errorf("%s: %+v", verb, k)
		}
	}
}
