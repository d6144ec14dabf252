package dial

import (
	"math/rand/v2"
	"time"
)

// Reconnect delays double from the first to the last, each shortened by up to a half at random, so that the proxies
// and lanes in front of one Redis do not all come back at the same instant.
const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 2 * time.Second
)

// A command that finds its lane resting brings the next attempt forward, but not before a pause that doubles up to
// lastPause.
const (
	firstPause = 5 * time.Millisecond
	lastPause  = 50 * time.Millisecond
)

// Backoff yields the delays between attempts to connect, and the pauses that commands must leave between them. The zero
// value starts anew. The two delays grow together, so a library would need two values and a wrapper longer than this.
type Backoff struct{ delay, pause time.Duration }

// Next is called after each attempt that failed.
func (b *Backoff) Next() (delay, pause time.Duration) {
	b.delay = min(max(2*b.delay, firstDelay), lastDelay)
	b.pause = min(max(2*b.pause, firstPause), lastPause)
	return b.delay - rand.N(b.delay/2), b.pause
}
