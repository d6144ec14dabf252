//go:build interop

package interop

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// everywhere are the languages that have each example but those with a pool.
var everywhere = []string{"shell", "python", "node", "go", "java"}

// programOf returns the command that runs an example in a language. It skips the test where that language is missing.
func programOf(t *testing.T, language, example string) (name string, args []string) {
	t.Helper()
	source := func(file string) string { return abs(t, root, "examples", language, file) }
	switch language {
	case "shell":
		requireTools(t, "redis-cli")
		return source(example + ".sh"), nil
	case "python":
		return python(t), []string{source(example + ".py")}
	case "node":
		file := example + ".mjs"
		return "node", []string{filepath.Join(node(t, source(file), source("lockproxy.mjs")), file)}
	case "go":
		path := filepath.Join(cache, "example-go-"+example)
		if err := tool(t.Context(), root, "go", "build", "-o", path, "./examples/go/"+strings.TrimPrefix(example, "lock")); err != nil {
			t.Fatal(err)
		}
		return path, nil
	case "java":
		title := strings.ToUpper(example[:1]) + example[1:]
		classpath := java(t, "example-java-"+example, source("pom.xml"), nil, []string{source(title + ".java")})
		return "java", javaCommand(classpath, title).Args[1:]
	case "php":
		requireTools(t, "php")
		if err := tool(t.Context(), root, "php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"); err != nil {
			missing(t, "php has no extension redis: %v", err)
		}
		return "php", []string{source(example + ".php")}
	case "ruby":
		requireTools(t, "ruby")
		if err := tool(t.Context(), root, "ruby", "-e", "require 'redis'"); err != nil {
			missing(t, "ruby has no gem redis: %v", err)
		}
		return "ruby", []string{source(example + ".rb")}
	case "c":
		requireTools(t, "gcc")
		path := filepath.Join(t.TempDir(), example)
		if err := tool(t.Context(), root, "gcc", "-Wall", "-Werror", "-o", path, source(example+".c"), "-lhiredis"); err != nil {
			missing(t, "C: %v", err)
		}
		return path, nil
	}
	t.Fatalf("examples in %s?", language)
	return "", nil
}

// exampleStand is a proxy that runs of an example use, and a client that holds the same locks.
type exampleStand struct {
	*stand
	language string
	lock     session
	name     string
	args     []string
}

// withExample runs a test for an example in each of some languages, at the same time.
func withExample(t *testing.T, example string, languages []string, test func(t *testing.T, s *exampleStand)) {
	t.Parallel()
	for _, language := range languages {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			s := &exampleStand{language: language}
			s.name, s.args = programOf(t, language, example)
			s.stand = newStand(t, redistest.Loopback)
			s.lock = openGoRedis(t, "redis://"+s.proxy)
			test(t, s)
		})
	}
}

// start runs the example, which works under its lock for some milliseconds.
func (s *exampleStand) start(t *testing.T, workMS string, more ...string) <-chan exampleRun {
	ended := make(chan exampleRun, 1)
	cmd := exec.Command(s.name, append(slices.Clone(s.args), more...)...)
	cmd.Env = s.environment("WORK_MS="+workMS, "REDIS_URL=redis://"+s.behind.Addr())
	go runExample(t.Context(), cmd, ended)
	return ended
}

// do sends a lock command, and fails the test unless that is its reply.
func (s *exampleStand) do(t *testing.T, want any, words ...string) {
	t.Helper()
	equal(t, do(t, s.lock, words...), want)
}

// taken returns when the example has the lock.
func (s *exampleStand) taken(t *testing.T, key string) {
	t.Helper()
	redistest.Eventually(t, limit, "the example to take the lock", func() bool { return do(t, s.lock, "EXISTS", key) == int64(1) })
}

// losesItsLock takes the lock away from a run, which says so.
func (s *exampleStand) losesItsLock(t *testing.T, key, output string, more ...string) {
	t.Helper()
	ended := s.start(t, "2500", more...)
	s.taken(t, key)
	s.do(t, int64(1), "FORCEUNLOCK", key)
	receive(t, ended).want(t, exampleLost, output)
}

// withoutProxy runs the example when nobody listens.
func (s *exampleStand) withoutProxy(t *testing.T) {
	t.Helper()
	s.proxy = freeAddr(t)
	receive(t, s.start(t, "50")).want(t, exampleDown, oneLine)
}

// Exit codes of the examples.
const (
	exampleDone = 0
	exampleLost = 1
	exampleDown = 69
	exampleBusy = 75
)

// oneLine is the output of a program that cannot reach the proxy: a line, no stack.
const oneLine = `^(no lock: |Could not connect )[^\n]+\n$`

// TestCrowds runs these programs where the proxy is there.
func TestExamplesWithPools(t *testing.T) {
	down := func(t *testing.T, s *exampleStand) { s.withoutProxy(t) }
	t.Parallel()
	t.Run("threads", func(t *testing.T) { withExample(t, "pool", []string{"python", "node", "go", "java"}, down) })
	t.Run("asyncio", func(t *testing.T) { withExample(t, "aio", []string{"python"}, down) })
}

func TestExamplesOfSharedLocks(t *testing.T) {
	withExample(t, "shared", everywhere, func(t *testing.T, s *exampleStand) {
		rebuilding := s.start(t, "300", "rebuild")
		s.taken(t, "index")
		reading := s.start(t, "50")
		rebuilt := receive(t, rebuilding)
		rebuilt.want(t, exampleDone, `^rebuilt \d+\n$`)
		data := "read " + strings.Fields(rebuilt.output)[1]
		receive(t, reading).want(t, exampleDone, "^"+data+"\n$")

		do(t, s.lock, "LOCK", "index", "SHARED")
		receive(t, s.start(t, "50")).want(t, exampleDone, "^"+data+"\n$") // beside another reader
		receive(t, s.start(t, "50", "rebuild")).want(t, exampleBusy, `^busy: `)
		s.do(t, int64(1), "UNLOCK", "index")
		do(t, s.lock, "LOCK", "index")
		receive(t, s.start(t, "50")).want(t, exampleBusy, `^busy: `)
		s.do(t, int64(1), "UNLOCK", "index")
		s.do(t, nil, "LOCKINFO", "index")

		s.losesItsLock(t, "index", `^lost: `)
		s.losesItsLock(t, "index", `^lost: `, "rebuild")
		s.withoutProxy(t)
	})
}

func TestExamplesOfLimits(t *testing.T) {
	withExample(t, "limit", everywhere, func(t *testing.T, s *exampleStand) {
		var fences []int64
		for range 4 {
			fences = append(fences, fence(t, do(t, s.lock, "LOCK", "jobs", "LIMIT", "5"), 0))
		}
		one, other := s.start(t, "300"), s.start(t, "300") // one place is left
		receive(t, one).want(t, exampleDone, `^fence \d+\ndone\n$`)
		receive(t, other).want(t, exampleDone, `^fence \d+\ndone\n$`)
		fences = append(fences, fence(t, do(t, s.lock, "TRYLOCK", "jobs", "LIMIT", "5"), 0))
		receive(t, s.start(t, "50")).want(t, exampleBusy, `^busy: `)
		for _, f := range fences {
			s.do(t, int64(1), "UNLOCK", "jobs", "FENCE", strconv.FormatInt(f, 10))
		}
		s.do(t, nil, "LOCKINFO", "jobs")
		s.losesItsLock(t, "jobs", `^fence \d+\nlost: `)
		s.withoutProxy(t)
	})
}

func TestExamples(t *testing.T) {
	withExample(t, "lock", append([]string{"php", "ruby", "c"}, everywhere...), func(t *testing.T, s *exampleStand) {
		t.Run("takes the lock, writes, releases", func(t *testing.T) {
			r := receive(t, s.start(t, "50"))
			r.want(t, exampleDone, `^fence \d+\ndone\n$`)
			s.do(t, strings.Fields(r.output)[1], "HGET", "report:result", "fence")
			s.do(t, s.language, "HGET", "report:result", "by")
			s.do(t, nil, "LOCKINFO", "report")
		})
		t.Run("two take turns", func(t *testing.T) {
			one, other := s.start(t, "300"), s.start(t, "300")
			a, b := receive(t, one), receive(t, other)
			a.want(t, exampleDone, `done\n$`)
			b.want(t, exampleDone, `done\n$`)
			if a.output == b.output {
				t.Errorf("both have the same fence: %q", a.output)
			}
		})
		t.Run("busy", func(t *testing.T) {
			do(t, s.lock, "LOCK", "report")
			receive(t, s.start(t, "50")).want(t, exampleBusy, `^busy: `)
			s.do(t, int64(1), "UNLOCK", "report")
		})
		t.Run("the lock is lost", func(t *testing.T) { s.losesItsLock(t, "report", `^fence \d+\nlost: `) })
		t.Run("another client has it meanwhile", func(t *testing.T) {
			ended := s.start(t, "2500")
			s.taken(t, "report")
			do(t, s.lock, "FORCEUNLOCK", "report")
			next := fence(t, do(t, s.lock, "TRYLOCK", "report"), 0)
			do(t, s.lock, "HSET", "report:result", "fence", strconv.FormatInt(next, 10), "by", "the next")
			receive(t, ended).want(t, exampleLost, `^fence \d+\nlost: `)
			s.do(t, "the next", "HGET", "report:result", "by")
			s.do(t, int64(1), "UNLOCK", "report")
		})
		t.Run("the proxy is down", s.withoutProxy)
	})
}

// exampleRun is one run of an example.
type exampleRun struct {
	output string // standard output, then standard error
	code   int
	err    error // other than an exit code
}

func runExample(ctx context.Context, cmd *exec.Cmd, ended chan<- exampleRun) {
	ended <- runProgram(ctx, limit-time.Second, cmd)
}

func runProgram(ctx context.Context, within time.Duration, cmd *exec.Cmd) exampleRun {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	stdout, stderr, err := run(ctx, cmd)
	r := exampleRun{output: string(stdout) + string(stderr), code: cmd.ProcessState.ExitCode()}
	if exit := new(exec.ExitError); !errors.As(err, &exit) {
		r.err = err
	}
	return r
}

func (r exampleRun) want(t *testing.T, code int, output string) {
	t.Helper()
	if r.err != nil || r.code != code || !regexp.MustCompile(output).MatchString(r.output) {
		t.Fatalf("exit code %d, want %d; %v; output %q, want %s", r.code, code, r.err, r.output, output)
	}
}
