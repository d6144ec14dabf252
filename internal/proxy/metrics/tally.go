package metrics

import (
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Tally counts by labels from a closed set. A label whose count is zero is not shown. The zero value is ready. Counting
// never waits: a counter of this package is made of atomic numbers, or is a small map behind a mutex of its own under
// which nothing else happens.
type Tally struct {
	mu    sync.Mutex
	count map[string]int64
}

// Add changes the count of a label by n, which may be negative.
func (t *Tally) Add(label string, n int64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.count == nil {
		t.count = map[string]int64{}
	}
	if t.count[label] += n; t.count[label] == 0 {
		delete(t.count, label)
	}
}

// Snapshot is a copy of the counts.
func (t *Tally) Snapshot() map[string]int64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make(map[string]int64, len(t.count))
	maps.Copy(out, t.count)
	return out
}

// Total is the sum of all counts.
func Total(byLabel map[string]int64) int64 {
	var sum int64
	for _, n := range byLabel {
		sum += n
	}
	return sum
}

// Joined lists counts by label, as in "blpop=1,multi=2".
func Joined(byLabel map[string]int64) string {
	var parts []string
	for _, label := range slices.Sorted(maps.Keys(byLabel)) {
		parts = append(parts, label+"="+strconv.FormatInt(byLabel[label], 10))
	}
	return strings.Join(parts, ",")
}

// Least is the least of the durations of the last one to two periods. The zero value is ready.
type Least struct {
	mu          sync.Mutex
	begun       time.Time // of the present period
	now, before time.Duration
}

const leastPeriod = time.Minute

// Add takes a duration of that moment.
func (l *Least) Add(at time.Time, d time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	l.now = min(l.now, d)
}

// Value is -1 s if there were none.
func (l *Least) Value(at time.Time) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.turn(at)
	if d := min(l.now, l.before); d < math.MaxInt64 {
		return d
	}
	return -time.Second
}

// turn begins a period when the present one is over. Requires l.mu.
func (l *Least) turn(at time.Time) {
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
