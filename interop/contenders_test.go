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

	"github.com/lockproxy/lockproxy/internal/redistest"
	"github.com/lockproxy/lockproxy/internal/upstream/slots"
)

// turnLimit bounds the time in which each contender must get its lock once more, whatever has happened to the servers.
const turnLimit = 30 * time.Second

// TestRedissonWhileServersChange has threads of Redisson and clients of two proxies contend for the same locks, plain and fair, while the slots of
// the locks move, a failover is made on request, and a primary is killed. No holder is beside another one, and each contender goes on getting
// its lock.
func TestRedissonWhileServersChange(t *testing.T) {
	version := redissonVersions[len(redissonVersions)-1]
	classes := redisson(t, version)
	c := redistest.StartCluster(t, 3, 1)
	s := &stand{behind: c.Nodes[0], direct: redistest.Start(t)}
	s.proxy, s.log = startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	second, _ := startProxy(t, "cluster://"+c.Addrs(), "--lock-lease", "3s")
	plain, fair := keysAt(0, "plain", 2), keysAt(0, "fair", 2)

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
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- cmd.Wait() }()
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // unless it has ended
		if t.Failed() {
			t.Logf("%s\n%s", stdout.Bytes(), last(stderr.Bytes(), 4096))
		}
	})
	all := 2 * 2 * (len(plain) + len(fair))
	s.turns(t, "at first", 1, all)

	// The locks of both kinds end at two servers.
	for _, to := range []int{1, 2, 0, 1} {
		for i := range plain {
			at := c.Nodes[to]
			if to == 1 && i == 1 {
				at = c.Nodes[2]
			}
			c.MoveSlot(slots.Of([]byte(plain[i])), at)
			c.MoveSlot(slots.Of([]byte(fair[i])), at)
		}
		s.turns(t, "after moves", 1, all)
	}
	c.Failover(c.Nodes[c.Primaries+1])
	s.turns(t, "after a failover on request", 1, all)

	if _, err := io.WriteString(input, "sync\n"); err != nil {
		t.Fatal(err)
	}
	s.turns(t, "with SYNC", 2, all) // the grants without it are over
	c.Nodes[2].Kill()
	s.turns(t, "after the end of a primary", 2, all)

	if _, err := io.WriteString(input, "end\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case err := <-exited:
		if err != nil {
			t.Errorf("the program ended: %v", err)
		}
	case <-time.After(programLimit):
		t.Fatal("the program does not end")
	}
	reportClaims(t, []string{"nobody-beside-a-holder", "each-hold-counts", "fences-grow", "refusals"}, stdout.Bytes())
}

// keysAt returns names of locks whose slots belong to a primary of a new cluster of three.
func keysAt(primary int, name string, n int) (all []string) {
	for i := 0; len(all) < n; i++ {
		if key := fmt.Sprint(name, i); slots.Of([]byte(key))/(redistest.Slots/3+1) == primary {
			all = append(all, key)
		}
	}
	return all
}

// turns returns when each contender has had its lock that many times more.
func (s *stand) turns(t *testing.T, when string, more, contenders int) {
	t.Helper()
	begin, before := time.Now(), s.holds(t)
	waiting := ""
	for time.Since(begin) < turnLimit {
		waiting = ""
		now := s.holds(t)
		for who, n := range now {
			if n < before[who]+more {
				waiting += ", " + who
			}
		}
		if waiting == "" && len(now) == contenders {
			t.Logf("%s: all had their turns within %v", when, time.Since(begin).Round(time.Millisecond))
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s: no turn within %v for %s", when, turnLimit, strings.TrimPrefix(waiting, ", "))
}

// holds are the numbers of holds of each contender.
func (s *stand) holds(t *testing.T) map[string]int {
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
