package errands

import "time"

// Attempts count the refusals of one command.
type Attempts struct {
	since time.Time // of the first one
	last  time.Time
	tries int
}

// Refused notes a refusal. It reports whether the command may be sent again: it may for a time after the first refusal.
func (a *Attempts) Refused(within time.Duration) bool {
	if a.tries++; a.tries == 1 {
		a.since = time.Now()
	}
	a.last = time.Now()
	return time.Since(a.since) <= within
}

// Sent notes that the command is sent again. Before the first refusal it does nothing.
func (a *Attempts) Sent() {
	if a.tries > 0 {
		a.last = time.Now()
	}
}

// Waited forgets the refusals if a server, which refuses the command now, has let it wait since then: another slot has moved, or the same one again.
func (a *Attempts) Waited(within time.Duration) {
	if time.Since(a.last) > within {
		*a = Attempts{}
	}
}

// First reports whether there has been one refusal only.
func (a *Attempts) First() bool { return a.tries == 1 }

// Pause is the time before the next attempt.
func (a *Attempts) Pause() time.Duration {
	if a.tries <= 1 {
		return 0
	}
	return min(5*time.Millisecond<<min(a.tries-2, 8), 100*time.Millisecond)
}
