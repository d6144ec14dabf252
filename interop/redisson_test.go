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
	"wake-readers", "wake-writers", "wake-writers-behind-shared", "wake-locks-behind-shared",
	"wake-shared-behind-writer", "wake-fair-shared-behind-writer", "wake-proxy-behind-writer",
	"wake-proxy-behind-reader", "wake-fair-behind-reader", "wake-shared-behind-lock",
	"readers-share", "readers-keep-leases", // Redisson's readLock and writeLock beside SHARED
	"wake-fair-redisson", "wake-fair-proxy",
	"forced-by-redisson", "forced-by-proxy", // forceUnlock and FORCEUNLOCK; Redisson's watchdog sees it
	"watchdogs",                                      // both keep their locks for longer than a lease
	"fair-order", "fair-killed-head", "fair-timeout", // one queue for both kinds
	"through-locks", "through-pubsub", "through-wait", // Redisson connected through the proxy
}

// clusterClaims is the number of redissonClaims that are also proved in a cluster, from the first on.
const clusterClaims = 27

// TestRedissonInACluster runs Redisson and the proxy in front of one Redis Cluster, on the same locks.
func TestRedissonInACluster(t *testing.T) {
	t.Parallel()
	for _, version := range redissonVersions {
		t.Run(version, func(t *testing.T) {
			t.Parallel()
			cluster := redistest.StartCluster(t, 3, 1)
			s := &stand{behind: cluster.Nodes[0], direct: cluster.Nodes[0]}
			s.proxy, s.log = startProxy(t, "cluster://"+cluster.Addrs(), "--lock-lease", "3s")
			cmd := javaCommand(redisson(t, version), "Scenarios")
			cmd.Env = append(s.environment(), "BEHIND_URL=cluster://"+cluster.Addrs())
			runClaims(t, redissonClaims[:clusterClaims], cmd)
		})
	}
}

// redisson returns the class path of the program with a version of Redisson.
func redisson(t *testing.T, version string) (classpath string) {
	t.Helper()
	sources := []string{
		abs(t, "java", "Check.java"), abs(t, "redisson", "Scenarios.java"),
		abs(t, "redisson", "Waiter.java"), abs(t, "redisson", "Wire.java"), abs(t, "redisson", "Contenders.java"),
		abs(t, "redisson", "Classes.java"),
	}
	return java(t, "redisson-"+version, abs(t, "redisson", "pom.xml"), []string{"-Dredisson.version=" + version}, sources)
}

// TestRedisson runs Redisson against the Redis behind the proxy, on the same locks as the proxy's clients.
func TestRedisson(t *testing.T) {
	upstreams(t, func(t *testing.T, at redistest.Place) {
		for _, version := range redissonVersions {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, at, "--lock-lease", "3s")
				replica := redistest.StartReplicaAt(t, at, s.behind)
				cmd := javaCommand(redisson(t, version), "Scenarios")
				cmd.Env = s.environment("REPLICA_PID=" + strconv.Itoa(replica.Pid()))
				runClaims(t, redissonClaims, cmd)
			})
		}
	})
}

// classes are the classes of Redisson that lock or count. interop/redisson/Classes.java uses each with the name of a lock.
var classes = []string{"lock", "fair", "spin", "fenced", "read", "write", "multi", "semaphore", "permits", "latch"}

// TestEachClassOfRedissonOnTheNameOfALock runs each class while the proxy holds a lock with its name, and the other way
// round. A Redis that hangs fails the claims.
func TestEachClassOfRedissonOnTheNameOfALock(t *testing.T) {
	var claims []string
	for _, class := range classes {
		claims = append(claims, "behind-proxy-"+class, "behind-shared-"+class, "behind-redisson-"+class)
		if class != "semaphore" && class != "latch" {
			claims = append(claims, "behind-limit-"+class)
		}
	}
	upstreams(t, func(t *testing.T, at redistest.Place) {
		for _, version := range redissonVersions {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				s := newStand(t, at, "--lock-lease", "3s")
				cmd := javaCommand(redisson(t, version), "Classes")
				cmd.Env = s.environment()
				runClaims(t, claims, cmd)
			})
		}
	})
}
