package upstream

import (
	"math/rand/v2"
	"time"
)

// Reconnect delays double from the first to the last, each with up to half of it taken off at random, so that the proxies
// and lanes in front of one Redis do not all come back at the same instant.
const (
	firstDelay = 50 * time.Millisecond
	lastDelay  = 2 * time.Second
)

// backoff yields the delays between attempts to connect. The zero value starts anew.
type backoff struct{ delay time.Duration }

// unused reports whether nothing has failed yet.
func (b *backoff) unused() bool { return b.delay == 0 }

func (b *backoff) next() time.Duration {
	switch {
	case b.delay == 0:
		b.delay = firstDelay
	default:
		b.delay = min(2*b.delay, lastDelay)
	}
	return b.delay - rand.N(b.delay/2)
}
