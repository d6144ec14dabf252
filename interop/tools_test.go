//go:build interop

package interop

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestRedisCLI runs redis-cli as people do: one command a call, a script of commands on its input, --pipe, RESP3.
func TestRedisCLI(t *testing.T) {
	requireTools(t, "redis-cli")
	upstreams(t, func(t *testing.T, at redistest.Place) {
		s := newStand(t, at)
		both := func(t *testing.T, input string, args ...string) {
			t.Helper()
			got, want := cli(t, s.proxy, input, args...), cli(t, s.direct.Addr(), input, args...)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("redis-cli %v (-direct +proxy):\n%s", args, diff)
			}
		}
		t.Run("one command", func(t *testing.T) {
			both(t, "", "SET", "k", "v")
			both(t, "", "GET", "k")
			both(t, "", "-n", "3", "GET", "k")
			both(t, "", "-3", "CONFIG", "GET", "maxmemory")
			both(t, "", "-3", "--json", "HGETALL", "none")
			both(t, "", "EVAL", "return {1, 2, {3, 'x'}}", "0")
			both(t, "", "LPUSH", "k", "x")
		})
		t.Run("input", func(t *testing.T) {
			lines := "MULTI\nINCR n\nINCR n\nEXEC\nWATCH n\nMULTI\nGET n\nEXEC\nLPUSH l a b c\nLRANGE l 0 -1\nBLPOP none 0.1\nNOSUCH x\n"
			both(t, lines)
			both(t, lines, "-3")
		})
		t.Run("pipe", func(t *testing.T) {
			var commands strings.Builder
			for i := range 10_000 {
				fmt.Fprintf(&commands, "SET pipe:%d %d\r\n", i, i)
			}
			got := cli(t, s.proxy, commands.String(), "--pipe")
			if want := "errors: 0, replies: 10000"; !strings.Contains(got, want) {
				t.Errorf("--pipe: %q, want %q", got, want)
			}
			both(t, commands.String(), "--pipe")
			both(t, "", "DBSIZE")
		})
		t.Run("scan", func(t *testing.T) {
			if got := strings.Count(cli(t, s.proxy, "", "--scan", "--pattern", "pipe:*"), "pipe:"); got != 10_000 {
				t.Errorf("--scan finds %d keys, want 10000", got)
			}
		})
		t.Run("locks", func(t *testing.T) {
			script := "LOCK a\nTRYLOCK a\nUNLOCK a\nUNLOCK a\nUNLOCK a\nLOCK a WAIT soon\nHLEN a\n"
			// The two fences are one number; after them the replies are what the README says.
			want := regexp.MustCompile(`^(\d{16})\n(\d{16})\n0\n1\nNOTHELD [^\n]+\n+ERR value is not an integer or out of range\n+0\n$`)
			got := cli(t, s.proxy, script)
			if m := want.FindStringSubmatch(got); m == nil || m[1] != m[2] {
				t.Errorf("got %q, want %s", got, want)
			}
		})
		t.Run("hints", func(t *testing.T) {
			// What an interactive redis-cli asks for before it completes and hints.
			got := cli(t, s.proxy, "", "COMMAND", "DOCS", "LOCK", "GET")
			for _, word := range []string{"lock", "get", "wait"} {
				if !strings.Contains(strings.ToLower(got), word) {
					t.Errorf("COMMAND DOCS LOCK GET: no %q in %.300q", word, got)
				}
			}
		})
		t.Run("subscribe and monitor", func(t *testing.T) {
			for _, command := range [][]string{{"SUBSCRIBE", "news"}, {"MONITOR"}} {
				streams(t, s, command...)
			}
		})
	})
}

// streams checks that a redis-cli that listens hears what another one publishes.
func streams(t *testing.T, s *stand, command ...string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	host, port, _ := strings.Cut(s.proxy, ":")
	cmd := exec.CommandContext(ctx, "redis-cli", append([]string{"-h", host, "-p", port}, command...)...)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	heard := make(chan error, 1)
	go func() { heard <- readUntil(out, "the message") }()
	for {
		cli(t, s.proxy, "", "PUBLISH", "news", "the message")
		select {
		case err := <-heard:
			if err != nil {
				t.Errorf("redis-cli %v: %v", command, err)
			}
			cancel()
			_ = cmd.Wait() // killed by the cancel
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// readUntil returns nil once the text has come, else why it has not.
func readUntil(r io.Reader, text string) error {
	var all bytes.Buffer
	b := make([]byte, 4096)
	for {
		n, err := r.Read(b)
		all.Write(b[:n])
		if strings.Contains(all.String(), text) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%w after %q", err, all.String())
		}
	}
}

// TestRedisBenchmark runs redis-benchmark's default tests: all must end, and none may speak of an error.
func TestRedisBenchmark(t *testing.T) {
	requireTools(t, "redis-benchmark")
	upstreams(t, func(t *testing.T, at redistest.Place) {
		for _, args := range [][]string{{"-P", "1", "-n", "2000"}, {"-P", "16", "-n", "16000"}, {"-P", "4", "-n", "2000", "-3", "-t", "get,set,lpush,mset"}} {
			t.Run(strings.Join(args, " "), func(t *testing.T) {
				s := newStand(t, at)
				host, port, _ := strings.Cut(s.proxy, ":")
				ctx, cancel := context.WithTimeout(t.Context(), programLimit)
				defer cancel()
				cmd := exec.Command("redis-benchmark", append([]string{"-h", host, "-p", port, "--csv"}, args...)...)
				stdout, stderr, err := run(ctx, cmd)
				if err != nil || len(bytes.TrimSpace(stderr)) > 0 || strings.Contains(strings.ToLower(string(stdout)), "err") {
					t.Errorf("redis-benchmark: %v\n%s%s", err, stdout, stderr)
				}
				want := 19 // tests by default
				if len(args) > 4 {
					want = 4
				}
				if got := strings.Count(string(stdout), "\n") - 1; got < want {
					t.Errorf("%d results, want %d:\n%s", got, want, stdout)
				}
			})
		}
	})
}

// cli runs redis-cli and returns what it writes; it must end by itself.
func cli(t *testing.T, addr, input string, args ...string) string {
	t.Helper()
	host, port, _ := strings.Cut(addr, ":")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	cmd := exec.Command("redis-cli", append([]string{"-h", host, "-p", port}, args...)...)
	cmd.Stdin = strings.NewReader(input)
	if input == "" {
		cmd.Stdin = nil
	}
	stdout, stderr, err := run(ctx, cmd)
	if ctx.Err() != nil {
		t.Fatalf("redis-cli %v does not end", args)
	}
	if err != nil && len(stderr) > 0 {
		t.Fatalf("redis-cli %v: %v\n%s", args, err, stderr)
	}
	return string(stdout)
}
