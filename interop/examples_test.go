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

// examples are the programs under examples/, by language.
var examples = map[string]func(t *testing.T) (name string, args []string){
	"shell": func(t *testing.T) (string, []string) {
		requireTools(t, "redis-cli")
		return abs(t, root, "examples", "shell", "lock.sh"), nil
	},
	"python": func(t *testing.T) (string, []string) {
		return python(t), []string{abs(t, root, "examples", "python", "lock.py")}
	},
	"node": func(t *testing.T) (string, []string) {
		return "node", []string{filepath.Join(node(t, abs(t, root, "examples", "node", "lock.mjs")), "lock.mjs")}
	},
	"go": func(t *testing.T) (string, []string) {
		path := filepath.Join(cache, "example-go")
		if err := tool(t.Context(), root, "go", "build", "-o", path, "./examples/go"); err != nil {
			t.Fatal(err)
		}
		return path, nil
	},
	"java": func(t *testing.T) (string, []string) {
		classpath := java(t, "example-java", abs(t, root, "examples", "java", "pom.xml"), nil, []string{abs(t, root, "examples", "java", "Lock.java")})
		return "java", javaCommand(classpath, "Lock").Args[1:]
	},
	"php": func(t *testing.T) (string, []string) {
		requireTools(t, "php")
		if err := tool(t.Context(), root, "php", "-r", "exit(extension_loaded('redis') ? 0 : 1);"); err != nil {
			missing(t, "php has no extension redis: %v", err)
		}
		return "php", []string{abs(t, root, "examples", "php", "lock.php")}
	},
	"ruby": func(t *testing.T) (string, []string) {
		requireTools(t, "ruby")
		if err := tool(t.Context(), root, "ruby", "-e", "require 'redis'"); err != nil {
			missing(t, "ruby has no gem redis: %v", err)
		}
		return "ruby", []string{abs(t, root, "examples", "ruby", "lock.rb")}
	},
	"c": func(t *testing.T) (string, []string) {
		requireTools(t, "gcc")
		path := filepath.Join(t.TempDir(), "lock")
		if err := tool(t.Context(), root, "gcc", "-Wall", "-Werror", "-o", path, "examples/c/lock.c", "-lhiredis"); err != nil {
			missing(t, "C: %v", err)
		}
		return path, nil
	},
}

// pools are the programs whose tasks share a pool of connections. They count to 40 under one lock.
var pools = map[string]func(t *testing.T) (name string, args []string){
	"python": func(t *testing.T) (string, []string) {
		return python(t), []string{abs(t, root, "examples", "python", "pool.py")}
	},
	"asyncio": func(t *testing.T) (string, []string) {
		return python(t), []string{abs(t, root, "examples", "python", "aio.py")}
	},
	"node": func(t *testing.T) (string, []string) {
		return "node", []string{filepath.Join(node(t, abs(t, root, "examples", "node", "pool.mjs")), "pool.mjs")}
	},
	"go": func(t *testing.T) (string, []string) {
		path := filepath.Join(cache, "example-go-pool")
		if err := tool(t.Context(), root, "go", "build", "-o", path, "./examples/go/pool"); err != nil {
			t.Fatal(err)
		}
		return path, nil
	},
}

// inAll returns a program of that name in each language.
func inAll(example string) map[string]func(t *testing.T) (name string, args []string) {
	title := strings.ToUpper(example[:1]) + example[1:]
	return map[string]func(t *testing.T) (string, []string){
		"shell": func(t *testing.T) (string, []string) {
			requireTools(t, "redis-cli")
			return abs(t, root, "examples", "shell", example+".sh"), nil
		},
		"python": func(t *testing.T) (string, []string) {
			return python(t), []string{abs(t, root, "examples", "python", example+".py")}
		},
		"node": func(t *testing.T) (string, []string) {
			file := example + ".mjs"
			return "node", []string{filepath.Join(node(t, abs(t, root, "examples", "node", file)), file)}
		},
		"go": func(t *testing.T) (string, []string) {
			path := filepath.Join(cache, "example-go-"+example)
			if err := tool(t.Context(), root, "go", "build", "-o", path, "./examples/go/"+example); err != nil {
				t.Fatal(err)
			}
			return path, nil
		},
		"java": func(t *testing.T) (string, []string) {
			source := abs(t, root, "examples", "java", title+".java")
			classpath := java(t, "example-java-"+example, abs(t, root, "examples", "java", "pom.xml"), nil, []string{source})
			return "java", javaCommand(classpath, title).Args[1:]
		},
	}
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

func TestExamplesWithPools(t *testing.T) {
	t.Parallel()
	for language, example := range pools {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			name, args := example(t)
			s := newStand(t, redistest.Loopback)
			receive(t, startExample(t, s, "", name, args)).want(t, exampleDone, `^count 40\n$`)
			if refusals := ask(s.proxy, "INFO lockproxy"); !strings.Contains(refusals, "lock_reentries_by_connection:granted=0,refused=0") {
				t.Errorf("tasks have shared a lock: %s", refusals)
			}
			s.proxy = freeAddr(t)
			receive(t, startExample(t, s, "", name, args)).want(t, exampleDown, oneLine)
		})
	}
}

func TestExamplesOfSharedLocks(t *testing.T) {
	t.Parallel()
	for language, example := range inAll("shared") {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			name, args := example(t)
			s := newStand(t, redistest.Loopback)
			start := func(workMS string, more ...string) <-chan exampleRun {
				return startExample(t, s, workMS, name, append(slices.Clone(args), more...))
			}
			lock := openGoRedis(t, "redis://"+s.proxy)

			rebuilding := start("300", "rebuild")
			redistest.Eventually(t, limit, "the rebuild to have the lock", func() bool { return do(t, lock, "EXISTS", "index") == int64(1) })
			reading := start("50")
			rebuilt := receive(t, rebuilding)
			rebuilt.want(t, exampleDone, `^rebuilt \d+\n$`)
			data := "read " + strings.Fields(rebuilt.output)[1]
			receive(t, reading).want(t, exampleDone, "^"+data+"\n$")

			do(t, lock, "LOCK", "index", "SHARED")
			receive(t, start("50")).want(t, exampleDone, "^"+data+"\n$") // beside another reader
			receive(t, start("50", "rebuild")).want(t, exampleBusy, `^busy: `)
			equal(t, do(t, lock, "UNLOCK", "index"), int64(1))
			do(t, lock, "LOCK", "index")
			receive(t, start("50")).want(t, exampleBusy, `^busy: `)
			equal(t, do(t, lock, "UNLOCK", "index"), int64(1))
			equal(t, do(t, lock, "LOCKINFO", "index"), nil)

			for _, more := range [][]string{nil, {"rebuild"}} {
				ended := start("2500", more...)
				redistest.Eventually(t, limit, "the example to take the lock", func() bool { return do(t, lock, "EXISTS", "index") == int64(1) })
				equal(t, do(t, lock, "FORCEUNLOCK", "index"), int64(1))
				receive(t, ended).want(t, exampleLost, `^lost: `)
			}
			s.proxy = freeAddr(t)
			receive(t, start("50")).want(t, exampleDown, oneLine)
		})
	}
}

func TestExamplesOfLimits(t *testing.T) {
	t.Parallel()
	for language, example := range inAll("limit") {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			name, args := example(t)
			s := newStand(t, redistest.Loopback)
			start := func(workMS string) <-chan exampleRun { return startExample(t, s, workMS, name, args) }
			lock := openGoRedis(t, "redis://"+s.proxy)

			var fences []int64
			for range 4 {
				fences = append(fences, fence(t, do(t, lock, "LOCK", "jobs", "LIMIT", "5"), 0))
			}
			one, other := start("300"), start("300") // one place is left
			receive(t, one).want(t, exampleDone, `^fence \d+\ndone\n$`)
			receive(t, other).want(t, exampleDone, `^fence \d+\ndone\n$`)
			fences = append(fences, fence(t, do(t, lock, "TRYLOCK", "jobs", "LIMIT", "5"), 0))
			receive(t, start("50")).want(t, exampleBusy, `^busy: `)
			for _, f := range fences {
				equal(t, do(t, lock, "UNLOCK", "jobs", "FENCE", strconv.FormatInt(f, 10)), int64(1))
			}
			equal(t, do(t, lock, "LOCKINFO", "jobs"), nil)

			ended := start("2500")
			redistest.Eventually(t, limit, "the example to take a permit", func() bool { return do(t, lock, "EXISTS", "jobs") == int64(1) })
			equal(t, do(t, lock, "FORCEUNLOCK", "jobs"), int64(1))
			receive(t, ended).want(t, exampleLost, `^fence \d+\nlost: `)
			s.proxy = freeAddr(t)
			receive(t, start("50")).want(t, exampleDown, oneLine)
		})
	}
}

func TestExamplesOfUpgrades(t *testing.T) {
	t.Parallel()
	for language, example := range inAll("upgrade") {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			name, args := example(t)
			s := newStand(t, redistest.Loopback)
			start := func(workMS string) <-chan exampleRun { return startExample(t, s, workMS, name, args) }
			lock := openGoRedis(t, "redis://"+s.proxy)

			do(t, lock, "LOCK", "counter")
			one, other := start("100"), start("100")
			redistest.Eventually(t, limit, "both to wait", func() bool { return strings.Contains(ask(s.proxy, "INFO lockproxy"), "lock_waiters:2") })
			equal(t, do(t, lock, "UNLOCK", "counter"), int64(1)) // both look at the same time, and one has to look again
			a, b := receive(t, one), receive(t, other)
			a.want(t, exampleDone, `^count [12]\n$`)
			b.want(t, exampleDone, `^count [12]\n$`)
			if a.output == b.output {
				t.Errorf("a change was lost: %q twice", a.output)
			}
			if counts := ask(s.proxy, "INFO lockproxy"); !strings.Contains(counts, "lock_errors:DEADLOCK=1,") {
				t.Errorf("one of them has to look again, once: %s", counts)
			}
			equal(t, do(t, lock, "LOCKINFO", "counter"), nil)

			do(t, lock, "LOCK", "counter")
			receive(t, start("50")).want(t, exampleBusy, `^busy: `)
			equal(t, do(t, lock, "UNLOCK", "counter"), int64(1))
			do(t, lock, "LOCK", "counter", "SHARED")
			receive(t, start("50")).want(t, exampleBusy, `^busy: `)
			equal(t, do(t, lock, "UNLOCK", "counter"), int64(1))
			equal(t, do(t, lock, "LOCKINFO", "counter"), nil)

			ended := start("2500")
			redistest.Eventually(t, limit, "the example to take the lock", func() bool { return do(t, lock, "EXISTS", "counter") == int64(1) })
			equal(t, do(t, lock, "FORCEUNLOCK", "counter"), int64(1))
			receive(t, ended).want(t, exampleLost, `^lost: `)
			s.proxy = freeAddr(t)
			receive(t, start("50")).want(t, exampleDown, oneLine)
		})
	}
}

func TestExamples(t *testing.T) {
	t.Parallel()
	for language, example := range examples {
		t.Run(language, func(t *testing.T) {
			t.Parallel()
			name, args := example(t)
			s := newStand(t, redistest.Loopback)
			start := func(workMS string) <-chan exampleRun { return startExample(t, s, workMS, name, args) }
			lock := openGoRedis(t, "redis://"+s.proxy)

			t.Run("takes the lock, writes, releases", func(t *testing.T) {
				r := receive(t, start("50"))
				r.want(t, exampleDone, `^fence \d+\ndone\n$`)
				equal(t, do(t, lock, "HGET", "report:result", "fence"), any(strings.Fields(r.output)[1]))
				equal(t, do(t, lock, "HGET", "report:result", "by"), any(language))
				equal(t, do(t, lock, "LOCKINFO", "report"), nil)
			})
			t.Run("two take turns", func(t *testing.T) {
				one, other := start("300"), start("300")
				a, b := receive(t, one), receive(t, other)
				a.want(t, exampleDone, `done\n$`)
				b.want(t, exampleDone, `done\n$`)
				if a.output == b.output {
					t.Errorf("both have the same fence: %q", a.output)
				}
			})
			t.Run("busy", func(t *testing.T) {
				do(t, lock, "LOCK", "report")
				receive(t, start("50")).want(t, exampleBusy, `^busy: `)
				equal(t, do(t, lock, "UNLOCK", "report"), int64(1))
			})
			t.Run("the proxy is down", func(t *testing.T) {
				down := *s
				down.proxy = freeAddr(t)
				receive(t, startExample(t, &down, "50", name, args)).want(t, exampleDown, oneLine)
			})
			t.Run("the lock is lost", func(t *testing.T) {
				ended := start("2500")
				taken(t, lock)
				equal(t, do(t, lock, "FORCEUNLOCK", "report"), int64(1))
				receive(t, ended).want(t, exampleLost, `^fence \d+\nlost: `)
			})
			t.Run("another client has it meanwhile", func(t *testing.T) {
				ended := start("2500")
				taken(t, lock)
				do(t, lock, "FORCEUNLOCK", "report")
				next := fence(t, do(t, lock, "TRYLOCK", "report"), 0)
				do(t, lock, "HSET", "report:result", "fence", strconv.FormatInt(next, 10), "by", "the next")
				receive(t, ended).want(t, exampleLost, `^fence \d+\nlost: `)
				equal(t, do(t, lock, "HGET", "report:result", "by"), any("the next"))
				equal(t, do(t, lock, "UNLOCK", "report"), int64(1))
			})
		})
	}
}

// taken returns when the example has the lock.
func taken(t *testing.T, s session) {
	t.Helper()
	redistest.Eventually(t, limit, "the example to take the lock", func() bool { return do(t, s, "EXISTS", "report") == int64(1) })
}

// exampleRun is one run of an example.
type exampleRun struct {
	output string // standard output, then standard error
	code   int
	err    error // other than an exit code
}

func startExample(t *testing.T, s *stand, workMS, name string, args []string) <-chan exampleRun {
	ended := make(chan exampleRun, 1)
	cmd := exec.Command(name, args...)
	cmd.Env = s.environment("WORK_MS=" + workMS)
	go runExample(t.Context(), cmd, ended)
	return ended
}

func runExample(ctx context.Context, cmd *exec.Cmd, ended chan<- exampleRun) {
	ctx, cancel := context.WithTimeout(ctx, limit-time.Second)
	defer cancel()
	stdout, stderr, err := run(ctx, cmd)
	r := exampleRun{output: string(stdout) + string(stderr), code: cmd.ProcessState.ExitCode()}
	if exit := new(exec.ExitError); !errors.As(err, &exit) {
		r.err = err
	}
	ended <- r
}

func (r exampleRun) want(t *testing.T, code int, output string) {
	t.Helper()
	if r.err != nil || r.code != code || !regexp.MustCompile(output).MatchString(r.output) {
		t.Fatalf("exit code %d, want %d; %v; output %q, want %s", r.code, code, r.err, r.output, output)
	}
}
