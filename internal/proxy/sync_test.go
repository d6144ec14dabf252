package proxy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lockproxy/lockproxy/internal/redistest"
)

// TestSyncedLocksOutliveTheirPrimary kills the primary right after the reply. Without SYNC some of the grants would be lost with it.
func TestSyncedLocksOutliveTheirPrimary(t *testing.T) {
	for _, c := range []struct {
		name    string
		options []string
		all     bool // by the setting
	}{
		{name: "SYNC 2", options: []string{"SYNC", "2"}}, {name: "lock.sync all", all: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			s := newFailoverStand(t, func(o *Options) {
				if c.all {
					o.Locks.Sync = SyncAll
				}
			})
			primary := s.sentinels.Primary()
			const n = 30
			var holders, rivals []*peer
			for i := range n {
				holders = append(holders, dialClient(t, address(s.proxies[i%len(s.proxies)])))
				rivals = append(rivals, dialClient(t, address(s.proxies[(i+1)%len(s.proxies)])))
			}
			fences := make([]int, n)
			for i, h := range holders {
				h.send(append([]string{"LOCK", fmt.Sprint("k", i)}, c.options...)...)
			}
			for i, h := range holders {
				reply, err := h.frame()
				if err != nil {
					t.Fatal(err)
				}
				fences[i] = integer(t, reply)
			}
			primary.Kill()
			now, _ := s.newPrimary(t, primary)
			for i, r := range rivals {
				reply := ""
				redistest.Eventually(t, patience, "an answer", func() bool {
					reply = r.quiet("TRYLOCK", fmt.Sprint("k", i))
					return !strings.HasPrefix(reply, "-NOUPSTREAM")
				})
				if reply != "$-1\r\n" {
					t.Errorf("k%d: the rival got %q", i, reply)
				}
				r.send("LOCK", fmt.Sprint("k", i), "WAIT", "20000")
			}
			redistest.Eventually(t, patience, "the rivals to wait at the new primary", func() bool {
				for i := range n {
					if now.Do(t, "PUBSUB", "NUMSUB", fmt.Sprintf("redisson_lock__channel:{k%d}", i)).([]any)[1] == int64(0) {
						return false
					}
				}
				return true
			})
			for i, h := range holders {
				if again := integer(t, h.quiet("LOCK", fmt.Sprint("k", i), "SYNC", "0")); again != fences[i] {
					t.Errorf("k%d: the holder enters again with fence %d, it had %d", i, again, fences[i])
				}
				for _, want := range []string{":0\r\n", ":1\r\n"} {
					if reply := h.quiet("UNLOCK", fmt.Sprint("k", i)); reply != want {
						t.Errorf("k%d: UNLOCK answered %q", i, reply)
					}
				}
			}
			if c.all {
				return // the old primary is a replica now, and is down
			}
			for i, r := range rivals {
				if reply, err := r.frame(); err != nil || integer(t, reply) <= fences[i] {
					t.Errorf("k%d: the rival got %q, %v; the fence before was %d", i, reply, err, fences[i])
				}
			}
		})
	}
}
