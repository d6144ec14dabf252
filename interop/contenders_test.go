//go:build interop

package interop

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockproxy/lockproxy/internal/hashslot"
	"github.com/lockproxy/lockproxy/internal/redistest"
)

// turnLimit bounds the time in which each contender must get its lock once more, whatever has happened to the servers.
const turnLimit = 30 * time.Second

// contenders is the program Contenders with its stand.
type contenders struct {
	*stand
	input     io.Writer
	exited    chan error
	stdout    bytes.Buffer
	stderr    bytes.Buffer
	locks     map[string]int // each with its number of threads of each side
	newcomers int            // clients of Redisson that have begun later
}

// contenderClaims are what Contenders proves whatever the servers do.
var contenderClaims = []string{"nobody-beside-a-holder", "each-hold-counts", "fences-grow", "readers-share", "no-refusals", "no-long-waits", "errors"}

// contend starts the program, with locks by the name of the variable that names them to it.
func contend(t *testing.T, s *stand, version string, locks map[string][]string, environment ...string) *contenders {
	t.Helper()
	c := &contenders{stand: s, exited: make(chan error, 1), locks: map[string]int{}}
	cmd := javaCommand(redisson(t, version), "Contenders")
	cmd.Env = s.environment(environment...)
	for variable, names := range locks {
		cmd.Env = append(cmd.Env, variable+"="+strings.Join(names, ","))
		for _, name := range names {
			c.locks[name] = each
			if variable == sharedLocks {
				c.locks[name] = 2 * each
			}
		}
	}
	cmd.Stdout, cmd.Stderr = &c.stdout, &c.stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	c.input = input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { c.exited <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // unless it has ended
	return c
}

// sharedLocks is the variable with the names of locks that have readers and writers.
const sharedLocks = "SHARED_LOCKS"

// end ends the program, which reports its claims.
func (s *contenders) end(t *testing.T) {
	t.Helper()
	s.tell(t, "end")
	select {
	case err := <-s.exited:
		if err != nil {
			t.Errorf("the program ended: %v\n%s", err, last(s.stderr.Bytes(), 4096))
		}
	case <-time.After(programLimit):
		t.Fatal("the program does not end")
	}
	reportClaims(t, contenderClaims, s.stdout.Bytes())
	t.Logf("holds: %v", s.holds(t))
}

// Readers and writers of both sides contend for one lock, by two proxies. No writer is beside anyone, readers share, and no thread waits for a third of
// a lease: each is woken.
func TestReadersAndWritersOfBothSides(t *testing.T) {
	upstreams(t, func(t *testing.T, at redistest.Place) {
		for _, version := range redissonVersions {
			t.Run(version, func(t *testing.T) {
				t.Parallel()
				stand := newStand(t, at)
				second, _ := startProxy(t, stand.behind.Addr())
				s := contend(t, stand, version, map[string][]string{sharedLocks: {"one"}},
					"PROXIES=redis://"+stand.proxy+",redis://"+second, "LEASE_MS=30000", "WAIT=120")
				for range 5 {
					s.turns(t, "of all", 40, "")
				}
				s.tell(t, "faults")
				s.end(t)
				keys, err := stand.behind.Client(t).Keys(t.Context(), "*one*").Result()
				left := slices.DeleteFunc(keys, func(key string) bool { return strings.HasPrefix(key, "redisson_unlock_latch:") }) // they end by themselves
				if err != nil || len(left) > 0 {
					t.Errorf("left: %v, %v", left, err)
				}
			})
		}
	})
}

// A reader and a writer of Redisson are killed while they hold the lock, and while they wait for it, and so is a proxy with its clients. The others go
// on. Before version 4.4 a renewal by a reader of Redisson's keeps all readers of the lock alive, also the dead: so writers of any side wait for as long
// as such readers come and go.
func TestReadersAndWritersOutliveTheKilled(t *testing.T) {
	version := redissonVersions[len(redissonVersions)-1]
	upstreams(t, func(t *testing.T, at redistest.Place) {
		stand := newStand(t, at, "--lock-lease", "3s")
		addr := freeAddr(t)
		second := launch(t, addr, stand.behind.Addr(), "--lock-lease", "3s")
		s := contend(t, stand, version, map[string][]string{sharedLocks: {"one"}}, "PROXIES=redis://"+stand.proxy+",redis://"+addr, "WAIT=2")
		s.turns(t, "at first", 1, "")
		s.tell(t, "faults")
		for _, kind := range []string{"read", "write"} {
			holder := s.waiter(t, version, kind)
			holder.says(t, "waits")
			holder.says(t, "granted")
			waiter := s.waiter(t, version, "write")
			waiter.says(t, "waits")
			waiter.kill(t)
			holder.kill(t)
			s.turns(t, "after a "+kind+" lock was killed", 1, "")
		}
		second.Kill()
		third := launch(t, addr, stand.behind.Addr(), "--lock-lease", "3s")
		t.Cleanup(func() { third.end(t) })
		s.turns(t, "after a proxy was killed", 1, "")
		s.end(t)
	})
}

// waiter is the program Waiter.
type waiter struct {
	cmd    *exec.Cmd
	stdout *bufio.Reader
}

// waiter starts a process that wants the lock and keeps it.
func (s *contenders) waiter(t *testing.T, version, kind string) *waiter {
	t.Helper()
	w := &waiter{cmd: javaCommand(redisson(t, version), "Waiter", "redis://"+s.behind.Addr(), "one", kind)}
	w.cmd.Env = s.environment()
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	w.stdout = bufio.NewReader(out)
	if err := w.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.kill(t) })
	return w
}

// says returns when the process has written that line.
func (w *waiter) says(t *testing.T, want string) {
	t.Helper()
	if line, err := w.stdout.ReadString('\n'); line != want+"\n" {
		t.Fatalf("a process of Redisson says %q, %v, want %q", line, err, want)
	}
}

func (w *waiter) kill(t *testing.T) {
	t.Helper()
	_ = w.cmd.Process.Kill()
	_ = w.cmd.Wait()
}

// TestRedissonWhileServersChange has threads of Redisson and clients of two proxies contend for the same locks, plain, fair and shared, while the slots
// of the locks move, a failover is made on request, and a primary is killed. No holder is beside another one. Behind each change the clients of the
// proxies go on getting their locks, and so does a new client of Redisson. Threads of Redisson that have begun earlier may have lost their
// subscriptions, as they do without lockproxy.
func TestRedissonWhileServersChange(t *testing.T) {
	t.Parallel()
	c := redistest.StartCluster(t, 3, 1)
	stand := &stand{behind: c.Nodes[0], direct: redistest.Start(t)}
	stand.proxy, stand.log = startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	second, _ := startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	plain, fair, shared := keysAt(0, "plain", 2), keysAt(0, "fair", 2), keysAt(0, "shared", 2)
	s := contend(t, stand, redissonVersions[len(redissonVersions)-1],
		map[string][]string{"LOCKS": plain, "FAIR_LOCKS": fair, sharedLocks: shared},
		"BEHIND_URL=cluster://"+c.Addrs(), "PROXIES=redis://"+stand.proxy+",redis://"+second, "WAIT=2")
	s.turns(t, "at first", 1, "")

	s.tell(t, "moves")
	// The locks of each kind end at two servers.
	for _, to := range []int{2, 0, 1} {
		for i := range plain {
			at := c.Nodes[to]
			if to == 1 && i == 1 {
				at = c.Nodes[2]
			}
			for _, name := range []string{plain[i], fair[i], shared[i]} {
				moveSlot(c, name, at)
			}
		}
		s.turns(t, "while slots move", 1, "proxy")
	}
	s.newcomer(t)
	c.Failover(c.Nodes[c.Primaries+1])
	s.turns(t, "after a failover on request", 1, "proxy")
	s.newcomer(t)

	s.tell(t, "sync")
	s.turns(t, "with SYNC", 2, "proxy") // the grants without it are over
	c.Nodes[2].Kill()
	redistest.Eventually(t, turnLimit, "a successor", func() bool { return c.Owner(hashslot.Of([]byte(plain[1]))) != nil })
	c.Nodes[2].Restart() // as a replica: SYNC needs one
	s.turns(t, "after the end of a primary", 2, "proxy")
	s.newcomer(t)

	s.end(t)
}

// tell gives the program a line.
func (s *contenders) tell(t *testing.T, line string) {
	t.Helper()
	if _, err := io.WriteString(s.input, line+"\n"); err != nil {
		t.Fatal(err)
	}
}

// newcomer returns when a new client of Redisson has had each lock.
func (s *contenders) newcomer(t *testing.T) {
	t.Helper()
	s.tell(t, "newcomer")
	redistest.Eventually(t, turnLimit, "a new client of Redisson to get each lock", func() bool {
		all := s.holds(t)
		for lock := range s.locks {
			if all[fmt.Sprintf("newcomer %d %s", s.newcomers, lock)] == 0 {
				return false
			}
		}
		return true
	})
	s.newcomers++
}

// moveSlot gives the slot of a key to another primary.
func moveSlot(c *redistest.Cluster, key string, to *redistest.Server) {
	slot := hashslot.Of([]byte(key))
	if from := c.Owner(slot); from != to {
		m := redistest.Move{Cluster: c, Slot: slot, From: from, To: to}
		m.Begin()
		m.Keys()
		m.End()
	}
}

// keysAt returns names of locks whose slots belong to a primary of a new cluster of three.
func keysAt(primary int, name string, n int) (all []string) {
	for i := 0; len(all) < n; i++ {
		if key := fmt.Sprint(name, i); hashslot.Of([]byte(key))/(redistest.Slots/3+1) == primary {
			all = append(all, key)
		}
	}
	return all
}

// each is the number of threads of each side at each lock. A shared lock has as many readers and writers.
const each = 2

// turns returns when each contender of a side has had its lock that many times more. No side: those of both.
func (s *contenders) turns(t *testing.T, when string, more int, side string) {
	t.Helper()
	begin, before := time.Now(), s.holds(t)
	sides := []string{side}
	if side == "" {
		sides = []string{"proxy", "redisson"}
	}
	redistest.Eventually(t, turnLimit, "turns "+when, func() bool {
		now := s.holds(t)
		for _, side := range sides {
			for lock, threads := range s.locks {
				for i := range threads {
					if who := fmt.Sprintf("%s %d %s", side, i, lock); now[who] < before[who]+more {
						return false
					}
				}
			}
		}
		return true
	})
	t.Logf("%s: all had their turns within %v", when, time.Since(begin).Round(time.Millisecond))
}

// holds are the numbers of holds of each contender.
func (s *contenders) holds(t *testing.T) map[string]int {
	t.Helper()
	list, _ := s.direct.Do(t, "HGETALL", "holds").([]any)
	all := map[string]int{}
	for i := 0; i+1 < len(list); i += 2 {
		who, _ := list[i].(string)
		text, _ := list[i+1].(string)
		all[who], _ = strconv.Atoi(text)
	}
	return all
}
