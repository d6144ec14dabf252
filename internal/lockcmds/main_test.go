package lockcmds

import (
	"testing"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ants.Release() // importing ants starts a pool of its own
	goleak.VerifyTestMain(m)
}
