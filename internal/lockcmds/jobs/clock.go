package jobs

import (
	"math/rand/v2"
	"time"
)

// The time that the lock engine lives in comes from a Clock. The product uses System. A test may use a clock of its
// own, so that hours pass in a moment and the same seed gives the same history.

// Clock tells the time and calls back when it has passed.
type Clock interface {
	// Now is the present instant. Instants of one clock may be compared and subtracted.
	Now() time.Time
	// AfterFunc calls f once, when d has passed. f may run on another goroutine.
	AfterFunc(d time.Duration, f func()) Timer
	// Random is a random length of time in [0, n). n is positive. It spreads what would else happen everywhere at the
	// same instant.
	Random(n time.Duration) time.Duration
}

// Timer is a call that AfterFunc has promised.
type Timer interface {
	// Stop cancels the call. It returns false if the call has begun, or was cancelled before.
	Stop() bool
	// Reset cancels the call, and promises it again for when d has passed. It returns what Stop does.
	Reset(d time.Duration) bool
}

// System is the clock of the machine. Its instants have a monotonic reading.
type System struct{}

// Now implements Clock.
func (System) Now() time.Time { return time.Now() }

// AfterFunc implements Clock. f runs on a goroutine of its own.
func (System) AfterFunc(d time.Duration, f func()) Timer { return time.AfterFunc(d, f) }

// Random implements Clock.
func (System) Random(n time.Duration) time.Duration { return rand.N(n) }
