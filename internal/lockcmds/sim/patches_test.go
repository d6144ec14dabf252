package sim

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/planted"
)

const root = "../../.."

// TestBugsCanBePlanted keeps the patches in step with the code. `make sim-bugs` plants them, now and then.
func TestBugsCanBePlanted(t *testing.T) {
	planted.Fits(t, root, planted.Patches(t, 8, "bugs"))
}
