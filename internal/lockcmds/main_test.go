package lockcmds

import (
	"flag"
	"testing"

	"github.com/panjf2000/ants/v2"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	ants.Release()                     // importing ants starts a pool of its own
	_ = flag.Set("test.parallel", "8") // parallel tests wait for leases to end; the command line may say another number
	goleak.VerifyTestMain(m)
}
