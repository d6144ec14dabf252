package topology

import "time"

// Attempts count the refusals of one command, and the time that they have cost it.
type Attempts struct {
	spent time.Duration // up to last, since the first one
	last  time.Time     // of a refusal, or of the attempt that has followed it
	tries int
}

// elapse notes that time has passed.
func (a *Attempts) elapse() {
	now := time.Now()
	if a.tries > 0 {
		a.spent += now.Sub(a.last)
	}
	a.last = now
}

// Refused notes a refusal. It reports whether the command may be sent again: it may until refusals have cost it a time.
func (a *Attempts) Refused(within time.Duration) bool {
	a.elapse()
	a.tries++
	return a.spent < within
}

// Sent notes that the command is sent again. Before the first refusal it does nothing.
func (a *Attempts) Sent() {
	if a.tries > 0 {
		a.elapse()
	}
}

// Waited forgets the refusals if a server, which refuses the command now, has let it wait since then: another slot has
// moved, or the same one again.
func (a *Attempts) Waited(within time.Duration) {
	if time.Since(a.last) > within {
		*a = Attempts{}
	}
}

// Held is Waited for a command that waits for other clients: no refusal has cost it the time since it was sent, however
// short that is.
func (a *Attempts) Held(within time.Duration) {
	a.Waited(within)
	a.last = time.Now()
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
