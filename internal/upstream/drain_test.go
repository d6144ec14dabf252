package upstream

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

type left = map[topology.Node]time.Duration

// play tells the servers that have left, a second apart, and fails unless the drains of these servers are over, each
// after so many seconds.
func play(t *testing.T, told []left, want map[topology.Node][]int) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		begin, got := time.Now(), map[topology.Node][]int{} // guarded by mu
		s := newDrainingServers(func(at topology.Node) {
			mu.Lock()
			defer mu.Unlock()
			got[at] = append(got[at], int(time.Since(begin).Seconds()))
		})
		for _, l := range told {
			s.Update(l)
			time.Sleep(time.Second)
			synctest.Wait()
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		for _, at := range []topology.Node{"a", "b"} {
			if !slices.Equal(got[at], want[at]) {
				t.Errorf("the drains of %s end after %v s, want %v", at, got[at], want[at])
			}
		}
		if len(s.all) > 0 {
			t.Error("a drain is remembered")
		}
	})
}

func TestAServerHasItsTime(t *testing.T) {
	play(t, []left{{"a": 3 * time.Second, "b": 5 * time.Second}}, map[topology.Node][]int{"a": {3}, "b": {5}})
}

func TestAServerKeepsItsEnd(t *testing.T) {
	play(t, []left{{"a": 3 * time.Second}, {"a": 3 * time.Second, "b": 3 * time.Second}}, map[topology.Node][]int{"a": {3}, "b": {4}})
}

func TestAServerThatDiesMeanwhileHasLess(t *testing.T) {
	play(t, []left{{"a": 9 * time.Second}, {"a": time.Second}}, map[topology.Node][]int{"a": {2}})
}

func TestAServerThatIsBackHasNoEnd(t *testing.T) {
	play(t, []left{{"a": 3 * time.Second}, nil}, nil)
}

func TestAServerThatLeavesAgainHasItsWholeTime(t *testing.T) {
	play(t, []left{{"a": 3 * time.Second}, nil, {"a": 3 * time.Second}}, map[topology.Node][]int{"a": {5}})
}

func TestAServerMayHaveAFarewellAfterItsEnd(t *testing.T) {
	play(t, []left{{"a": time.Second / 2}, {"a": 3 * time.Second}}, map[topology.Node][]int{"a": {0, 4}})
}
