//go:build interop

package interop

import (
	"strconv"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// redissonVersions are the last of each major version.
var redissonVersions = []string{"3.52.0", "4.7.0"}

// redissonClaims are what interop/redisson proves.
var redissonClaims = []string{
	"redisson-holds", "proxy-holds", // isLocked, tryLock, unlock by the other side
	"reentry",                               // hold counts, as either side sees the other's
	"expiry-of-redisson", "expiry-of-proxy", // a fixed lease ends
	"wake-redisson-lock", "wake-redisson-trylock", "wake-redisson-async", "wake-proxy",
	"wake-fair-redisson", "wake-fair-proxy",
	"forced-by-redisson", "forced-by-proxy", // forceUnlock and FORCEUNLOCK; Redisson's watchdog sees it
	"watchdogs",                                      // both keep their locks for longer than a lease
	"fair-order", "fair-killed-head", "fair-timeout", // one queue for both kinds
	"through-locks", "through-pubsub", "through-wait", // Redisson connected through the proxy
}

// TestRedisson runs Redisson against the Redis behind the proxy, on the same locks as the proxy's clients.
func TestRedisson(t *testing.T) {
	upstreams(t, func(t *testing.T) {
		for _, version := range redissonVersions {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				sources := []string{
					abs(t, "java", "Check.java"), abs(t, "redisson", "Scenarios.java"),
					abs(t, "redisson", "Waiter.java"), abs(t, "redisson", "Wire.java"),
				}
				classpath := java(t, "redisson-"+version, abs(t, "redisson", "pom.xml"), []string{"-Dredisson.version=" + version}, sources)
				s := newStand(t, "--lock-lease", "3s")
				replica := redistest.StartReplica(t, s.behind)
				cmd := javaCommand(classpath, "Scenarios")
				cmd.Env = s.environment("REPLICA_PID=" + strconv.Itoa(replica.Pid()))
				runClaims(t, redissonClaims, cmd)
			})
		}
	})
}
