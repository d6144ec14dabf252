package lockcmds

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/planted"
)

// TestBugsCanBePlanted keeps the patches in step with the code. `make sim-bugs` plants them, now and then.
func TestBugsCanBePlanted(t *testing.T) {
	planted.Fits(t, "../..", planted.Patches(t, 4, "bugs"))
}
