//go:build interop

package interop

import (
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// programs are the clients that have a program of their own, by name.
var programs = map[string]func(t *testing.T) *exec.Cmd{
	"redis-py": func(t *testing.T) *exec.Cmd { return exec.Command(python(t), abs(t, "python", "redis_py.py")) },
	"redis-py-resp2": func(t *testing.T) *exec.Cmd {
		return exec.Command(python(t), abs(t, "python", "redis_py.py"), "protocol=2")
	},
	"node-redis": func(t *testing.T) *exec.Cmd { return nodeCommand(t, "node_redis.mjs") },
	"ioredis":    func(t *testing.T) *exec.Cmd { return nodeCommand(t, "ioredis.mjs") },
	"jedis":      func(t *testing.T) *exec.Cmd { return javaClient(t, "JedisClaims") },
	"lettuce":    func(t *testing.T) *exec.Cmd { return javaClient(t, "LettuceClaims") },
}

func nodeCommand(t *testing.T, file string) *exec.Cmd {
	t.Helper()
	dir := node(t, abs(t, "node", "claims.mjs"), abs(t, "node", file))
	return exec.Command("node", filepath.Join(dir, file))
}

func javaClient(t *testing.T, class string) *exec.Cmd {
	t.Helper()
	sources := []string{
		abs(t, "java", "Check.java"), abs(t, "java", "Claims.java"),
		abs(t, "java", "JedisClaims.java"), abs(t, "java", "LettuceClaims.java"), abs(t, "java", "Crowd.java"),
	}
	return javaCommand(java(t, "java", abs(t, "java", "pom.xml"), nil, sources), class)
}

func TestClientLibraries(t *testing.T) {
	upstreams(t, func(t *testing.T, at redistest.Place) {
		for name, command := range programs {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				cmd := command(t)
				cmd.Env = newStand(t, at).environment("OPERATIONS=" + writeOperations(t))
				want := claims
				if filepath.Base(cmd.Path) == "node" {
					want = append(slices.Clip(want), "lock-tasks")
				}
				runClaims(t, want, cmd)
			})
		}
	})
}
