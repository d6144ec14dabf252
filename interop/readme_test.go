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

// codeBlock is a block in a document: its language, and its lines.
var codeBlock = regexp.MustCompile("(?ms)^```([a-z]+)\n(.*?)^```$")

// blocks returns the blocks of a document in a language as they stand.
func blocks(t *testing.T, document, language string) []string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, document))
	if err != nil {
		t.Fatal(err)
	}
	var found []string
	for _, m := range codeBlock.FindAllStringSubmatch(string(text), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
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

// TestReadme runs every block of the README, as it stands, twice: a newcomer tries again.
func TestReadme(t *testing.T) {
	requireTools(t, "redis-cli", "redis-benchmark", "redis-server", "make")
	atFixedPorts(t, "7379", "6379")
	got := blocks(t, "README.md", "sh")
	if len(got) != 4 {
		t.Fatalf("%d blocks, want: lock, serve, try, serve before Redis", len(got))
	}
	lock, embedded, try, inFront := got[0], got[1], got[2], got[3]
	const proxy = "127.0.0.1:7379"
	tried := regexp.MustCompile(`^\d+\nI hold a, fence \d+\n$`)
	all := func() {
		for range 2 {
			if out := shell(t, try); !tried.MatchString(out) {
				t.Errorf("the quickstart printed %q", out)
			}
			if out := shell(t, lock); out != "1\n" {
				t.Errorf("the first lines printed %q", out)
			}
		}
	}
	end := serve(t, embedded, proxy)
	all()
	end()
	redis := exec.Command("redis-server", "--port", "6379", "--save", "", "--dir", t.TempDir())
	if err := redis.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = redis.Process.Kill()
		_ = redis.Wait()
	}()
	defer serve(t, inFront, proxy)()
	all()
	for _, document := range []string{"docs/EXEC.md", "bench/README.md"} {
		for _, block := range blocks(t, document, "sh") {
			shell(t, "PATH=$PWD/bin:$PATH\n"+block)
		}
	}
	for language, prepared := range map[string][3]string{
		"php":    {"-r", "$redis = new Redis(); $redis->connect('127.0.0.1', 7379);", "echo $fence;"},
		"python": {"-c", "import redis; locks = redis.Redis.from_url('redis://127.0.0.1:7379')", "print(fence)"},
	} {
		t.Run(language, func(t *testing.T) {
			name, _ := programOf(t, language, "lock") // or skips
			code := strings.Join([]string{prepared[1], blocks(t, "README.md", language)[0], prepared[2]}, "\n")
			out, err := exec.Command(name, prepared[0], code).CombinedOutput()
			if err != nil || !regexp.MustCompile(`^\d+\s*$`).Match(out) {
				t.Errorf("%v, the fence is %q", err, out)
			}
			if got := ask(proxy, "LOCKINFO invoice:42"); !strings.HasPrefix(got, "*-1") && !strings.HasPrefix(got, "$-1") {
				t.Errorf("the lock is still held: %q", got)
			}
		})
	}
}
