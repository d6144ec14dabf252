// The tests of the parts of the engine are beside their files, here and in the packages below. Other tests of this
// package play the whole engine in front of a real Redis, by theme:
//
//	engine, frontdoor, handle, list, notes   each verb, in the usual case
//	shared, limit, crowd, waiters, places    several holders, waits and turns
//	parts, elsewhere, sharednames, redisson  one owner, several sessions or proxies
//	order, force, deadlock                   answers that come late, and what ends a lock or a wait
//	cleanup, slices                          the ends of many sessions and leases at once
//	sync, faults, sick, failstop             replicas, a Redis or an engine that fails
//
// What happens whatever the order of answers, messages and ends is, the histories in sim say.

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
