package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/redis/go-redis/v9"
	"go.uber.org/goleak"

	"github.com/lockproxy/lockproxy/internal/embedded"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const limit = 10 * time.Second // for anything that should take no time

func start(t *testing.T) (*embedded.Server, *redis.Client) {
	t.Helper()
	s, err := embedded.Start()
	if err != nil {
		t.Fatal(err)
	}
	c := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1})
	t.Cleanup(func() {
		_ = c.Close()
		s.Close()
	})
	return s, c
}

func ctx(t *testing.T) context.Context {
	t.Helper()
	c, cancel := context.WithTimeout(context.Background(), limit)
	t.Cleanup(cancel)
	return c
}

// A key ends with its TTL, among many others, and not before.
func TestKeysEndWithTheirTTL(t *testing.T) {
	_, c := start(t)
	pipe := c.Pipeline()
	pipe.Set(ctx(t), "long", "v", time.Hour)
	for i := range 20_000 {
		pipe.Set(ctx(t), fmt.Sprint("key", i), "v", 100*time.Millisecond)
	}
	if _, err := pipe.Exec(ctx(t)); err != nil {
		t.Fatal(err)
	}
	deadline, ask := ctx(t), time.NewTicker(time.Millisecond)
	defer ask.Stop()
	for n := int64(1); n > 0; <-ask.C {
		var err error
		if n, err = c.Exists(deadline, "key19999").Result(); err != nil {
			t.Fatalf("the key is still there: %v", err)
		}
	}
	if left := c.PTTL(deadline, "long").Val(); left > time.Hour-100*time.Millisecond || left < time.Hour-limit {
		t.Errorf("another key has %v left of an hour", left)
	}
}

func TestConfigGetTellsTheTruthInBothVersions(t *testing.T) {
	s, c := start(t)
	want := map[string]string{"maxmemory": "0", "maxmemory-policy": "noeviction", "save": ""}
	got, err := c.Do(ctx(t), "CONFIG", "GET", "MAXMEM*", "save").Result()
	if diff := cmp.Diff(map[any]any{"maxmemory": "0", "maxmemory-policy": "noeviction", "save": ""}, got); err != nil || diff != "" {
		t.Errorf("RESP3: %v (-want +got):\n%s", err, diff)
	}
	c2 := redis.NewClient(&redis.Options{Addr: s.Addr(), Protocol: 2})
	defer c2.Close()
	got2, err := c2.ConfigGet(ctx(t), "[ms]a*").Result()
	if diff := cmp.Diff(want, got2); err != nil || diff != "" {
		t.Errorf("RESP2: %v (-want +got):\n%s", err, diff)
	}
	for _, args := range [][]any{{"CONFIG"}, {"CONFIG", "GET"}, {"CONFIG", "SET", "save", ""}, {"COMMAND"}, {"COMMAND", "DOCS", "get"}} {
		var refused redis.Error
		if err := c.Do(ctx(t), args...).Err(); !errors.As(err, &refused) {
			t.Errorf("%v: %v, want an error reply", args, err)
		}
	}
}

func TestStockToolsRun(t *testing.T) {
	s, _ := start(t)
	_, port, err := net.SplitHostPort(s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ tool, args, in, want string }{
		{"redis-cli", "-p " + port, "SET a 1\nGET a\n", "OK\n1\n"},
		{"redis-cli", "-3 -p " + port, "CONFIG GET save\n", "save \n"},
		{"redis-benchmark", "-p " + port + " -n 1000 -q -t set,get,lpush", "", "LPUSH: "},
	} {
		if _, err := exec.LookPath(c.tool); err != nil {
			t.Skipf("no %s: %v", c.tool, err)
		}
		cmd := exec.CommandContext(ctx(t), c.tool, strings.Fields(c.args)...)
		cmd.Stdin = strings.NewReader(c.in)
		out, err := cmd.CombinedOutput()
		if err != nil || !strings.Contains(string(out), c.want) || strings.Contains(string(out), "WARNING") {
			t.Errorf("%s %s: %v, want %q and no warning in:\n%s", c.tool, c.args, err, c.want, out)
		}
	}
}

func TestCloseEndsConnectionsAndMayBeRepeated(t *testing.T) {
	s, _ := start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	s.Close()
	s.Close()
	_ = c.SetReadDeadline(time.Now().Add(limit))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("read after Close: %v, want the end of the connection", err)
	}
}

// The lock engine's library sends a PING behind each UNSUBSCRIBE.
func TestASubscriberMayPing(t *testing.T) {
	s, _ := start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	if _, err := io.WriteString(c, "*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\na\r\n*1\r\n$4\r\nPING\r\n"); err != nil {
		t.Fatal(err)
	}
	for replies := bufio.NewScanner(c); replies.Scan(); {
		switch line := replies.Text(); line {
		case "+PONG":
			return
		case "$4": // as in RESP2
			if replies.Scan(); replies.Text() == "pong" {
				t.Fatal("the answer is no PONG")
			}
		}
	}
	t.Fatal("no answer")
}
