package status

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
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

// least is the least of the durations of the last one to two periods. The zero value is ready.
type least struct {
	mu          sync.Mutex
	begun       time.Time // of the present period
	now, before time.Duration
}

const leastPeriod = time.Minute

func (l *least) add(at time.Time, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	l.now = min(l.now, d)
}

// value is -1 if there were none.
func (l *least) value(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	if d := min(l.now, l.before); d < math.MaxInt64 {
		return d
	}
	return -1
}

// turn begins a period when the present one is over. Requires l.mu.
func (l *least) turn(at time.Time) {
	switch passed := at.Sub(l.begun); {
	case passed >= 2*leastPeriod:
		l.now, l.before = math.MaxInt64, math.MaxInt64
	case passed >= leastPeriod:
		l.now, l.before = math.MaxInt64, l.now
	default:
		return
	}
	l.begun = at
}
