// The tests of the parts of the engine are beside their files, here and in the packages below. Other tests of this
// package play the whole engine in front of a real Redis, by theme:
//
//	engine, frontdoor, list   each verb, in the usual case
//	repeat, doubt             answers that are lost: acquire.go, attempt.go, release.go, extend.go
//	order, shorter            answers that come in another order, or late: release.go, extend.go, force.go
//	parts, fields, sharednames, redisson   one owner, several sessions or proxies
//	cleanup, slices           the ends of many sessions and leases at once
//	waiters, crowd, places    waits and turns
//	sync, failover, faults, sick, failstop   replicas, failovers, a Redis or an engine that fails

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
