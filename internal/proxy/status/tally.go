package status

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
)

// tally counts by words of a closed set.
type tally struct {
	mu    sync.Mutex
	count map[string]int
}

func (t *tally) Add(word string, n int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int{}
	}
	if t.count[word] += n; t.count[word] == 0 {
		delete(t.count, word)
	}
}

func (t *tally) snapshot() map[string]int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.count)
}

func (t *tally) sum() int {
	sum := 0
	for _, n := range t.snapshot() {
		sum += n
	}
	return sum
}

// String lists the counts that there are, "blpop=1,multi=2".
func (t *tally) String() string {
	count := t.snapshot()
	var parts []string
	for _, word := range slices.Sorted(maps.Keys(count)) {
		parts = append(parts, word+"="+strconv.Itoa(count[word]))
	}
	return strings.Join(parts, ",")
}
