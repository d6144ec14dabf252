package embedded

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

const (
	// A step is made when this many times its own cost has passed since the last: 5 % of a core at most.
	restPerCost = 20
	// maxRest bounds the error of a TTL whatever the number of keys.
	maxRest = 100 * time.Millisecond
)

// aging shortens the TTLs of all keys by the time that has passed, on the monotonic clock. Lock order: mu before the
// mutex of redis.
type aging struct {
	redis *miniredis.Miniredis // immutable

	mu   sync.Mutex    // guards the fields below
	last time.Time     // TTLs are right as of this instant
	cost time.Duration // of a step, estimated
}

// step never waits for a command or script that is being executed: those called by a script come here with the
// server's mutex already held.
func (a *aging) step() {
	if !a.mu.TryLock() {
		return // another step is being made
	}
	defer a.mu.Unlock()
	now := time.Now()
	passed := now.Sub(a.last)
	if passed < min(restPerCost*a.cost, maxRest) || !a.redis.TryLock() {
		return
	}
	a.redis.Unlock() // FastForward takes it itself
	a.redis.FastForward(passed)
	a.last = now
	// A step that was interrupted says little about the next step, so the estimate grows by small factors.
	a.cost = min(time.Since(now), 2*a.cost+10*time.Microsecond)
}
