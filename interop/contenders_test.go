//go:build interop

package interop

import (
	"bytes"
	"fmt"
	"io"
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
	locks     []string
	newcomers int // clients of Redisson that have begun later
}

// TestRedissonWhileServersChange has threads of Redisson and clients of two proxies contend for the same locks, plain and fair, while the slots of
// the locks move, a failover is made on request, and a primary is killed. No holder is beside another one. Behind each change the clients of the
// proxies go on getting their locks, and so does a new client of Redisson. Threads of Redisson that have begun earlier may have lost their
// subscriptions, as they do without lockproxy.
func TestRedissonWhileServersChange(t *testing.T) {
	t.Parallel()
	version := redissonVersions[len(redissonVersions)-1]
	classes := redisson(t, version)
	c := redistest.StartCluster(t, 3, 1)
	s := &contenders{stand: &stand{behind: c.Nodes[0], direct: redistest.Start(t)}}
	s.proxy, s.log = startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	second, _ := startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	plain, fair := keysAt(0, "plain", 2), keysAt(0, "fair", 2)
	s.locks = append(append(s.locks, plain...), fair...)

	cmd := javaCommand(classes, "Contenders")
	cmd.Env = s.environment(
		"BEHIND_URL=cluster://"+c.Addrs(), "PROXIES=redis://"+s.proxy+",redis://"+second,
		"LOCKS="+strings.Join(plain, ","), "FAIR_LOCKS="+strings.Join(fair, ","),
	)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	s.input = input
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // unless it has ended
	s.turns(t, "at first", 1, "")

	// The locks of both kinds end at two servers.
	for _, to := range []int{2, 0, 1} {
		for i := range plain {
			at := c.Nodes[to]
			if to == 1 && i == 1 {
				at = c.Nodes[2]
			}
			moveSlot(c, plain[i], at)
			moveSlot(c, fair[i], at)
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

	s.tell(t, "end")
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("the program ended: %v\n%s", err, last(stderr.Bytes(), 4096))
		}
	case <-time.After(programLimit):
		t.Fatal("the program does not end")
	}
	reportClaims(t, []string{"nobody-beside-a-holder", "each-hold-counts", "fences-grow", "no-refusals", "errors"}, stdout.Bytes())
	t.Logf("holds: %v", s.holds(t))
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
		for _, lock := range s.locks {
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

// each is the number of threads of each side at each lock.
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
			for _, lock := range s.locks {
				for i := range each {
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
