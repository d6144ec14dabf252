package embedded_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
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

// vanish asks for the key until it is gone.
func vanish(t *testing.T, c *redis.Client, key string) {
	t.Helper()
	ctx := ctx(t)
	ask := time.NewTicker(time.Millisecond)
	defer ask.Stop()
	for {
		n, err := c.Exists(ctx, key).Result()
		switch {
		case err != nil:
			t.Fatalf("%s is still there: %v", key, err)
		case n == 0:
			return
		}
		<-ask.C
	}
}

func TestKeysEndWithTheirTTLAndNotBefore(t *testing.T) {
	_, c := start(t)
	const ttl = 50 * time.Millisecond
	sent := map[string]time.Time{}
	pace := time.NewTicker(time.Millisecond)
	defer pace.Stop()
	for i := range 20 { // over two ticks: a bare ticker would end some of these 10 ms early
		key := fmt.Sprint("k", i)
		sent[key] = time.Now()
		if err := c.Set(ctx(t), key, "v", ttl).Err(); err != nil {
			t.Fatal(err)
		}
		<-pace.C
	}
	deadline := ctx(t)
	for len(sent) > 0 {
		for key, at := range sent {
			n, err := c.Exists(deadline, key).Result()
			if err != nil {
				t.Fatalf("%d keys are still there: %v", len(sent), err)
			}
			if n != 0 {
				continue
			}
			delete(sent, key)
			// TTLs are right as of the latest step, so allow a little.
			if lived := time.Since(at); lived < ttl-8*time.Millisecond {
				t.Errorf("%s lived %v, want %v", key, lived, ttl)
			}
		}
	}
}

func TestManyKeysAgeAsWell(t *testing.T) {
	_, c := start(t)
	pipe := c.Pipeline()
	for i := range 20_000 {
		pipe.Set(ctx(t), fmt.Sprint("key", i), "v", 100*time.Millisecond)
	}
	if _, err := pipe.Exec(ctx(t)); err != nil {
		t.Fatal(err)
	}
	vanish(t, c, "key19999")
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

func TestSubscriberMayPing(t *testing.T) {
	s, _ := start(t)
	c, err := net.Dial("tcp", s.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(limit))
	replies := bufio.NewReader(c)
	const hello = "*0\r\n" // the last line of the answer to HELLO
	for _, step := range [][2]string{
		{"*2\r\n$9\r\nSUBSCRIBE\r\n$1\r\nc\r\n", "*3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n"},
		{"*1\r\n$4\r\nPING\r\n", "*2\r\n$4\r\npong\r\n$0\r\n\r\n"},
		{"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", hello},
		{"*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
		{"*2\r\n$4\r\nPING\r\n$1\r\nx\r\n", "$1\r\nx\r\n"},
		{"*2\r\n$11\r\nUNSUBSCRIBE\r\n$1\r\nc\r\n", ">3\r\n$11\r\nunsubscribe\r\n$1\r\nc\r\n:0\r\n"},
		{"*1\r\n$4\r\nPING\r\n", "+PONG\r\n"},
	} {
		if _, err := c.Write([]byte(step[0])); err != nil {
			t.Fatal(err)
		}
		got := ""
		for err == nil && (len(got) < len(step[1]) || step[1] == hello && !strings.HasSuffix(got, hello)) {
			var line string
			line, err = replies.ReadString('\n')
			got += line
		}
		if err != nil || got != step[1] && step[1] != hello {
			t.Fatalf("%q got %q, %v; want %q", step[0], got, err, step[1])
		}
	}
}

// redis-cli hints by the answer. In RESP3 that would have another form, so there it is refused.
func TestCommandsAreDocumentedForRedisCli(t *testing.T) {
	s, c := start(t)
	c2 := redis.NewClient(&redis.Options{Addr: s.Addr(), MaxRetries: -1, Protocol: 2})
	defer c2.Close()
	docs, err := c2.Do(ctx(t), "COMMAND", "docs").Slice()
	if err != nil || len(docs) < 400 || len(docs)%2 != 0 {
		t.Fatalf("%d names and descriptions: %v", len(docs), err)
	}
	described := map[any]any{}
	for i := 0; i < len(docs); i += 2 {
		described[docs[i]] = docs[i+1]
	}
	if get, ok := described["get"].([]any); !ok || get[0] != "summary" {
		t.Errorf("get: %v", described["get"])
	}
	var refused redis.Error
	if err := c.Do(ctx(t), "COMMAND", "DOCS").Err(); !errors.As(err, &refused) {
		t.Errorf("RESP3: %v, want an error reply", err)
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
