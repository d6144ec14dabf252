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

	"github.com/redis/go-redis/v9"

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

// A task uses a library before, during and after an outage. It calls ready when it is at work, and reads back when the
// outage is over.
type task func(t *testing.T, name, url string, ready func(), back <-chan struct{}) outage

// programTask is a task for which a program is run.
func programTask(command func(library, url string) *exec.Cmd) task {
	return func(t *testing.T, name, url string, ready func(), back <-chan struct{}) outage {
		return lives(t, name, command(name, url), ready, back)
	}
}

func inPython(t *testing.T) task {
	interpreter, file := python(t), abs(t, "python", "outages.py")
	return programTask(func(library, url string) *exec.Cmd { return exec.Command(interpreter, file, library, url) })
}

func inNode(t *testing.T) task {
	modules := node(t, abs(t, "node", "outages.mjs"))
	return programTask(func(library, url string) *exec.Cmd {
		return exec.Command("node", filepath.Join(modules, "outages.mjs"), library, url)
	})
}

func inJava(t *testing.T) task {
	classes := java(t, "java", abs(t, "java", "pom.xml"), nil, []string{abs(t, "java", "Outages.java")})
	return programTask(func(library, url string) *exec.Cmd { return javaCommand(classes, "Outages", library, url) })
}

// Redis is away for two seconds. What libraries and workers are used for fails no more often through the proxy than on
// direct connections at the same time, because it is an outage to them as well.
func TestAnOutageIsOneToLibraries(t *testing.T) {
	python, node, java := inPython(t), inNode(t), inJava(t)
	libraries := map[string]task{
		"redis-py": python, "celery": python, "rq": python,
		"ioredis": node, "node-redis": node, "bullmq": node,
		"jedis": java, "lettuce": java,
		"go-redis": inGo,
	}
	for end, wait := range map[string]string{"killed": "2s", "shut down": "500ms"} {
		t.Run(end, func(t *testing.T) {
			persistent := []string{"--appendonly", "yes", "--appendfsync", "always"}
			behind, direct := redistest.Start(t, persistent...), redistest.Start(t, persistent...)
			proxy, _ := startProxy(t, behind.Addr(), "--failover-wait", wait)
			outlive(t, libraries, "redis://"+proxy, "redis://"+direct.Addr(), func() {
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
			})
		})
	}
}

// A primary dies, and Sentinels promote its replica. Clients of the proxy know nothing of them; those on direct
// connections ask them.
func TestAFailoverIsAnOutageToLibraries(t *testing.T) {
	libraries := map[string]task{"redis-py": inPython(t), "ioredis": inNode(t), "go-redis": inGo}
	stand := func() (primary *redistest.Server, s *redistest.Sentinels) {
		primary = redistest.Start(t)
		replica := redistest.StartReplica(t, primary)
		return primary, redistest.StartSentinels(t, 3, primary, []*redistest.Server{replica})
	}
	behind, watched := stand()
	direct, asked := stand()
	proxy, _ := startProxy(t, watched.URL())
	outlive(t, libraries, "redis://"+proxy, asked.URL(), func() {
		behind.Kill()
		direct.Kill()
		watched.AwaitOther(behind)
		asked.AwaitOther(direct)
	})
}

// outlive runs libraries over an outage, through the proxy and direct.
func outlive(t *testing.T, libraries map[string]task, proxy, direct string, happen func()) {
	t.Helper()
	seen := map[string]*[2]outage{}
	var ready, over sync.WaitGroup
	back := make(chan struct{})
	for name, run := range libraries {
		both := &[2]outage{}
		seen[name] = both
		for i, url := range []string{proxy, direct} {
			ready.Add(1)
			over.Go(func() { both[i] = run(t, name, url, sync.OnceFunc(ready.Done), back) })
		}
	}
	ready.Wait()
	happen()
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
}

// inGo is go-redis, with as many attempts as the programs have.
func inGo(t *testing.T, name, url string, ready func(), back <-chan struct{}) (seen outage) {
	defer ready()
	opts := redis.UniversalOptions{MaxRetries: 12, MaxRetryBackoff: 500 * time.Millisecond}
	kind, rest, _ := strings.Cut(url, "://")
	if kind == "sentinel" {
		rest, opts.MasterName, _ = strings.Cut(rest, "/")
	}
	opts.Addrs = strings.Split(rest, ",")
	client := redis.NewUniversalClient(&opts)
	defer client.Close()
	const enough = 50
	var mu sync.Mutex
	done, over := 0, false
	work := func() {
		for {
			err := client.Incr(t.Context(), name).Err()
			mu.Lock()
			if err == nil {
				done++
			} else if seen.Failures++; seen.Failures <= 3 {
				seen.First = append(seen.First, err.Error())
			}
			end := over
			mu.Unlock()
			if end {
				return
			}
			time.Sleep(20 * time.Millisecond)
		}
	}
	more := func(n int) func() bool {
		return func() bool {
			mu.Lock()
			defer mu.Unlock()
			return done >= n
		}
	}
	var group sync.WaitGroup
	for range tasks {
		group.Go(work)
	}
	redistest.Eventually(t, time.Minute, "go-redis at work", more(enough))
	ready()
	<-back
	mu.Lock()
	before := done
	mu.Unlock()
	redistest.Eventually(t, time.Minute, "go-redis to go on", more(before+enough))
	mu.Lock()
	seen.Done, over = done-before, true
	mu.Unlock()
	group.Wait()
	return seen
}

// lives runs a program over an outage.
func lives(t *testing.T, name string, cmd *exec.Cmd, ready func(), back <-chan struct{}) (seen outage) {
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
