package upstream

import (
	"maps"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockproxy/lockproxy/internal/upstream/topology"
)

type left = map[topology.Node]time.Duration

// The servers that have left are told a second apart.
func TestAServerThatHasLeftHasItsTime(t *testing.T) {
	const sec = time.Second
	for name, c := range map[string]struct {
		told []left
		want map[topology.Node][]int // when drains are over, in seconds
	}{
		"two servers":            {[]left{{"a": 3 * sec, "b": 5 * sec}}, map[topology.Node][]int{"a": {3}, "b": {5}}},
		"one keeps its end":      {[]left{{"a": 3 * sec}, {"a": 3 * sec, "b": 3 * sec}}, map[topology.Node][]int{"a": {3}, "b": {4}}},
		"it dies meanwhile":      {[]left{{"a": 9 * sec}, {"a": sec}}, map[topology.Node][]int{"a": {2}}},
		"it is back":             {[]left{{"a": 3 * sec}, nil}, nil},
		"it leaves again":        {[]left{{"a": 3 * sec}, nil, {"a": 3 * sec}}, map[topology.Node][]int{"a": {5}}},
		"another behind its end": {[]left{{"a": sec / 2}, {"a": 3 * sec}}, map[topology.Node][]int{"a": {0, 4}}},
	} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			begin, got := time.Now(), map[topology.Node][]int{} // guarded by mu
			s := drains{}
			for _, l := range c.told {
				s.update(l, func(at topology.Node) {
					mu.Lock()
					defer mu.Unlock()
					got[at] = append(got[at], int(time.Since(begin).Seconds()))
				})
				time.Sleep(sec)
				synctest.Wait()
			}
			time.Sleep(time.Hour)
			synctest.Wait()
			if !maps.EqualFunc(got, c.want, slices.Equal) {
				t.Errorf("%s: drains end after %v s, want %v", name, got, c.want)
			}
		})
	}
}
