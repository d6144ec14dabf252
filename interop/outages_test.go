//go:build interop

package interop

import (
	"bufio"
	"encoding/json"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// outage is what a program has seen of one.
type outage struct {
	Done     int      `json:"done"`     // behind it
	Failures int      `json:"failures"` // that the application was told
	First    []string `json:"first"`
}

// tasks use a library at the same time.
const tasks = 8

// Redis is away for two seconds. What libraries and workers are used for fails no more often through the proxy than on
// direct connections at the same time, because it is an outage to them as well.
func TestAnOutageIsOneToLibraries(t *testing.T) {
	interpreter, file := python(t), abs(t, "python", "outages.py")
	modules := node(t, abs(t, "node", "outages.mjs"))
	classes := java(t, "java", abs(t, "java", "pom.xml"), nil, []string{abs(t, "java", "Outages.java")})
	inPython := func(library, url string) *exec.Cmd { return exec.Command(interpreter, file, library, url) }
	inNode := func(library, url string) *exec.Cmd {
		return exec.Command("node", filepath.Join(modules, "outages.mjs"), library, url)
	}
	inJava := func(library, url string) *exec.Cmd { return javaCommand(classes, "Outages", library, url) }
	libraries := map[string]func(library, url string) *exec.Cmd{
		"redis-py": inPython, "celery": inPython, "rq": inPython,
		"ioredis": inNode, "node-redis": inNode, "bullmq": inNode,
		"jedis": inJava, "lettuce": inJava,
	}
	for end, wait := range map[string]string{"killed": "2s", "shut down": "500ms"} {
		t.Run(end, func(t *testing.T) {
			persistent := []string{"--appendonly", "yes", "--appendfsync", "always"}
			behind, direct := redistest.Start(t, persistent...), redistest.Start(t, persistent...)
			proxy, _ := startProxy(t, behind.Addr(), "--failover-wait", wait)
			seen := map[string]*[2]outage{}
			var ready, over sync.WaitGroup
			back := make(chan struct{})
			for name, command := range libraries {
				both := &[2]outage{}
				seen[name] = both
				for i, addr := range []string{proxy, direct.Addr()} {
					ready.Add(1)
					cmd := command(name, "redis://"+addr)
					over.Go(func() { both[i] = lives(t, name, cmd, ready.Done, back) })
				}
			}
			ready.Wait()
			var away sync.WaitGroup
			for _, redis := range []*redistest.Server{behind, direct} {
				away.Go(func() {
					if end == "killed" {
						redis.Kill()
					} else {
						redis.Stop()
					}
				})
			}
			away.Wait()
			time.Sleep(2 * time.Second) // the outage
			behind.Restart()
			direct.Restart()
			close(back)
			over.Wait()
			for name, both := range seen {
				t.Logf("%-10s %3d failures through the proxy, %3d direct", name, both[0].Failures, both[1].Failures)
				if both[0].Done == 0 || both[1].Done == 0 {
					t.Errorf("%s: it does not go on: %+v", name, both)
				}
				allowed := both[1].Failures
				if name == "node-redis" { // it gives up what it has written: here that of all tasks, to three connections
					allowed += 3 * tasks
				}
				if both[0].Failures > allowed {
					t.Errorf("%s: %d failures through the proxy, %d direct: %q", name, both[0].Failures, both[1].Failures, both[0].First)
				}
			}
		})
	}
}

// lives runs a program over an outage.
func lives(t *testing.T, name string, cmd *exec.Cmd, ready func(), back <-chan struct{}) (seen outage) {
	ready = sync.OnceFunc(ready)
	defer ready()
	var complaints strings.Builder
	cmd.Stderr = &complaints
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Error(err)
		return seen
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Error(err)
		return seen
	}
	if err := cmd.Start(); err != nil {
		t.Error(err)
		return seen
	}
	timer := time.AfterFunc(2*time.Minute, func() { _ = cmd.Process.Kill() })
	defer timer.Stop()
	lines := bufio.NewScanner(out)
	if !lines.Scan() || lines.Text() != "ready" {
		t.Errorf("%s: it says %q; %s", name, lines.Text(), last([]byte(complaints.String()), 2000))
	}
	ready()
	<-back
	_, _ = io.WriteString(in, "back\n")
	if !lines.Scan() || json.Unmarshal(lines.Bytes(), &seen) != nil {
		t.Errorf("%s: it says %q; %s", name, lines.Text(), last([]byte(complaints.String()), 2000))
	}
	_ = in.Close()
	_ = cmd.Wait()
	return seen
}
