package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/lockcmds/script"
	"github.com/lockproxy/lockproxy/internal/lockcmds/table"
)

func TestTheScriptOfAnAttemptGoesByTheWayToWait(t *testing.T) {
	a := asking{Acquire: script.Acquire{Key: "k"}}
	for name, w := range map[string]*table.Waiter{"acquire": {}, "fair": {Fair: true}} {
		if got := (exclusive{}).Ask(a, w).Name(); got != name {
			t.Errorf("%s, want %s", got, name)
		}
	}
}
