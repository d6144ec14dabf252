//go:build interop

package interop

import (
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// crowds are programs whose 400 tasks begin at random times, and take turns under one lock with fewer connections than
// tasks. The tasks count how many of them are inside.
var crowds = map[string]func(t *testing.T) *exec.Cmd{
	"redis-py":            example("python", "pool"),
	"redis-py, asyncio":   example("python", "aio"),
	"node-redis":          example("node", "pool"),
	"go-redis":            example("go", "pool"),
	"jedis":               example("java", "pool"),
	"redis-py, two pools": func(t *testing.T) *exec.Cmd { return exec.Command(python(t), abs(t, "python", "crowd.py")) },
	"ioredis":             func(t *testing.T) *exec.Cmd { return nodeCommand(t, "crowd.mjs") },
	"lettuce":             func(t *testing.T) *exec.Cmd { return javaClient(t, "Crowd") },
}

func example(language, name string) func(t *testing.T) *exec.Cmd {
	return func(t *testing.T) *exec.Cmd {
		t.Helper()
		program, args := programOf(t, language, name)
		return exec.Command(program, args...)
	}
}

func TestCrowds(t *testing.T) {
	t.Parallel()
	for name, command := range crowds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := command(t)
			t.Run("one proxy", func(t *testing.T) {
				s := newStand(t, redistest.Loopback)
				takesTurns(t, cmd, s, s.proxy)
			})
			t.Run("two proxies", func(t *testing.T) {
				s := newStand(t, redistest.Loopback)
				other, _ := startProxy(t, s.behind.Addr())
				both := *s
				both.proxy = alternate(t, s.proxy, other)
				takesTurns(t, cmd, &both, s.proxy, other)
			})
		})
	}
}

// takesTurns runs a crowd and checks that no lock was shared, lost or left at any of the proxies.
func takesTurns(t *testing.T, cmd *exec.Cmd, s *stand, proxies ...string) {
	t.Helper()
	again := exec.Command(cmd.Path, cmd.Args[1:]...)
	again.Env = s.environment("REDIS_URL=redis://" + s.behind.Addr())
	runProgram(t.Context(), time.Minute, again).want(t, exampleDone, `^count 400, at most 1 inside\n$`)
	for _, proxy := range proxies {
		redistest.Eventually(t, limit, "no lock to be left", func() bool {
			return strings.Contains(ask(proxy, "INFO lockproxy"), "locks_held:0")
		})
		if got := ask(proxy, "INFO lockproxy"); !regexp.MustCompile(`locks_lost:0\b`).MatchString(got) {
			t.Errorf("locks were lost: %s", got)
		}
	}
}

// alternate forwards each connection to the next of some addresses, as a Service without session affinity does.
func alternate(t *testing.T, addrs ...string) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	var turn atomic.Int64
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", addrs[int(turn.Add(1))%len(addrs)])
			if err != nil {
				_ = c.Close()
				continue
			}
			for _, way := range [][2]net.Conn{{c, to}, {to, c}} {
				go func() {
					_, _ = io.Copy(way[0], way[1])
					_ = way[0].Close()
				}()
			}
		}
	}()
	return ln.Addr().String()
}

// The files to copy prove the same with each protocol.
func TestFilesToCopy(t *testing.T) {
	helper := abs(t, "python", "helper.py")
	pythons := []string{
		"busy", "no-connection", "long-wait", "lost", "another-holder", "body-error", "words", "cut",
		"aio-busy", "aio-lost", "aio-body-error", "aio-cancelled",
	}
	programs := map[string]struct {
		claims  []string
		command func(t *testing.T) *exec.Cmd
	}{
		"python":       {pythons, func(t *testing.T) *exec.Cmd { return exec.Command(python(t), helper) }},
		"python-resp2": {pythons, func(t *testing.T) *exec.Cmd { return exec.Command(python(t), helper, "protocol=2") }},
		"node": {
			[]string{"busy", "no-connection", "lost", "body-error", "words", "cut"},
			func(t *testing.T) *exec.Cmd {
				dir := node(t, abs(t, "node", "claims.mjs"), abs(t, "node", "helper.mjs"), abs(t, root, "examples", "node", "lockproxy.mjs"))
				return exec.Command("node", filepath.Join(dir, "helper.mjs"))
			},
		},
	}
	t.Parallel()
	for name, p := range programs {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd := p.command(t)
			cmd.Env = newStand(t, redistest.Loopback).environment("EXAMPLES="+abs(t, root, "examples", "python"), "PYTHONDONTWRITEBYTECODE=1")
			runClaims(t, p.claims, cmd)
		})
	}
}
