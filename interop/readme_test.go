//go:build interop

package interop

import (
	"bytes"
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// shellBlock is a block of commands in a document.
var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```$")

// blocks returns the command blocks of a document as they stand.
func blocks(t *testing.T, document string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range shellBlock.FindAllStringSubmatch(string(text), -1) {
		found = append(found, m[1])
	}
	return found
}

// shell runs a block as a user pastes it, in the top directory. It must end well and soon.
func shell(t *testing.T, block string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "sh", "-euxc", block)
	cmd.Dir = root
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s\n%s%s", err, block, out, &stderr)
	}
	return string(out)
}

// serve runs a block whose last command serves, until the returned function ends it, as Ctrl-C does.
func serve(t *testing.T, block, addr string) (end func()) {
	t.Helper()
	cmd := exec.Command("sh", "-euxc", block)
	cmd.Dir, cmd.SysProcAttr = root, &syscall.SysProcAttr{Setpgid: true}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := false
	end = func() {
		if !ended {
			ended = true
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
			_ = cmd.Wait()
		}
	}
	t.Cleanup(end)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s\n%s", block, &out)
		}
	})
	redistest.Eventually(t, 3*time.Minute, "the proxy to answer PING", func() bool { return strings.HasPrefix(ask(addr, "PING"), "+PONG") })
	return end
}

// atFixedPorts skips a test whose commands name ports that are in use here.
func atFixedPorts(t *testing.T, ports ...string) {
	t.Helper()
	for _, port := range ports {
		ln, err := net.Listen("tcp", "127.0.0.1:"+port)
		if err != nil {
			missing(t, "port %s is in use: %v", port, err)
		}
		_ = ln.Close()
	}
}

// TestReadme runs every command block of the README, in order and as it stands, twice: a newcomer tries again.
func TestReadme(t *testing.T) {
	requireTools(t, "redis-cli", "redis-benchmark", "redis-server", "make")
	atFixedPorts(t, "7379", "6379")
	got := blocks(t, "README.md")
	if len(got) != 3 {
		t.Fatalf("%d blocks, want: serve, try, serve before Redis", len(got))
	}
	const proxy = "127.0.0.1:7379"
	wants := regexp.MustCompile(`^I hold hello, fence \d+\n\d+\n\d+\n\n1\n$`)
	end := serve(t, got[0], proxy)
	for range 2 {
		if out := shell(t, got[1]); !wants.MatchString(out) {
			t.Errorf("the quickstart printed %q", out)
		}
	}
	end()
	redis := exec.Command("redis-server", "--port", "6379", "--save", "", "--dir", t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = redis.Process.Kill()
		_ = redis.Wait()
	}()
	defer serve(t, got[2], proxy)()
	if out := shell(t, got[1]); !wants.MatchString(out) {
		t.Errorf("in front of Redis the quickstart printed %q", out)
	}
	for _, document := range []string{"docs/EXEC.md", "bench/README.md"} {
		for _, block := range blocks(t, document) {
			shell(t, "PATH=$PWD/bin:$PATH\n"+block)
		}
	}
}
