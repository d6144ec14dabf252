package locks

import (
	"testing"

	"github.com/lockproxy/lockproxy/internal/planted"
)

// TestBugsCanBePlanted keeps the patches in step with the code: planting them, and seeing them caught, takes long and is done
// now and then.
func TestBugsCanBePlanted(t *testing.T) {
	planted.Fits(t, root, planted.Patches(t, 24, "bugs", "bugs/cluster", "bugs/kinds", "bugs/limit"))
}
