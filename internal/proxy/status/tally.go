package status

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tally counts by labels from a closed set. A label whose count is zero is not shown. The zero value is ready.
type tally struct {
	mu    sync.Mutex
	count map[string]int64
}

// Add changes the count of a label by n, which may be negative.
func (t *tally) Add(label string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int64{}
	}
	if t.count[label] += n; t.count[label] == 0 {
		delete(t.count, label)
	}
}

func (t *tally) snapshot() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]int64, len(t.count))
	maps.Copy(out, t.count)
	return out
}

func total(byLabel map[string]int64) int64 {
	var sum int64
	for _, n := range byLabel {
		sum += n
	}
	return sum
}

// joined lists counts by label, as in "blpop=1,multi=2".
func joined(byLabel map[string]int64) string {
	var parts []string
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		parts = append(parts, label+"="+strconv.FormatInt(byLabel[label], 10))
	}
	return strings.Join(parts, ",")
}
