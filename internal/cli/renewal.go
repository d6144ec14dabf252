package cli

import "time"

// Action is what the holder does now.
type Action uint8

// The actions.
const (
	actNone      Action = iota
	actExtend           // ask the proxy to extend the lease
	actTerminate        // SIGTERM to the command
	actKill             // SIGKILL to the command
)

// Reason says why the command is ended.
type Reason uint8

// The reasons.
const (
	Running Reason = iota // it is not
	Taken                 // the proxy says that the lock is lost
	Silence               // no extension has succeeded for too long
	heldOut               // the longest hold is over
)

// Config has the lengths of time, all positive but MaxHold.
type Config struct {
	Lease   time.Duration
	MaxHold time.Duration // 0: no limit
}

// The parts of a lease after the last successful extension.
func (c Config) interval() time.Duration { return c.Lease / 6 }      // the next extension
func (c Config) retry() time.Duration    { return c.Lease / 30 }     // after a failed one
func (c Config) polite() time.Duration   { return c.Lease * 2 / 3 }  // SIGTERM
func (c Config) last() time.Duration     { return c.Lease * 9 / 10 } // SIGKILL
// mercy is the time between SIGTERM and SIGKILL if the lock is lost already.
func (c Config) mercy() time.Duration { return min(2*time.Second, c.Lease/10) }

// patience is how long a holder that was stopped itself waits for the proxy's word.
func (c Config) patience() time.Duration { return c.Lease / 3 }

// AttemptLimit is the longest wait for the answer to one extension.
func (c Config) AttemptLimit() time.Duration { return c.Lease / 4 }

// lockRenewal is one hold of one lock.
//
// It is a state machine without I/O or clock.
//
//	Extended, Failed, Lost ──► lockRenewal ── Step ──► actExtend, actTerminate, actKill
//
// The holder extends its lease at the proxy and knows when it asked. So it knows a moment until which the lock is
// certainly its own: the last successful extension was sent then, and the lease is so long. If no extension succeeds,
// the command is told to end and then killed before that moment. If the lock is lost at once, the command is killed a
// moment later.
//
// If the holder itself was stopped, the proxy has kept the lock meanwhile, or has not. It asks at once, and the command
// is killed if no answer comes.
//
// Invariants:
//   - actKill comes before the known end of the lease, unless the lock was taken away before, or the holder was stopped.
//   - actTerminate comes once, and before actKill, unless the holder was stopped. Nothing comes after actKill.
//   - At most one extension is on its way.
type lockRenewal struct {
	cfg    Config
	began  time.Time
	sure   time.Time // when the last successful extension was sent
	next   time.Time // when to ask again
	asking bool

	reason Reason
	killAt time.Time // zero: not decided
	told   bool      // actTerminate was given
	killed bool

	wake  time.Time // Step has asked to be called by then
	until time.Time // before that, silence is no reason: the holder was stopped
}

// newLockRenewal begins a renewal with an extension that was sent at that moment.
func newLockRenewal(cfg Config, sentAt time.Time) *lockRenewal {
	next := sentAt.Add(cfg.interval())
	return &lockRenewal{cfg: cfg, began: sentAt, sure: sentAt, next: next, wake: next}
}

// Reason says why the command is ended, or that it is not.
func (t *lockRenewal) Reason() Reason { return t.reason }

// Sure reports whether the lock is certainly still held at that moment.
func (t *lockRenewal) Sure(now time.Time) bool {
	return t.reason != Taken && now.Before(t.sure.Add(t.cfg.Lease))
}

// Extended notes an extension that was sent at that moment and has succeeded.
func (t *lockRenewal) Extended(sentAt time.Time) {
	t.asking = false
	t.sure, t.next = sentAt, sentAt.Add(t.cfg.interval())
}

// Failed notes an extension without an answer.
func (t *lockRenewal) Failed(now time.Time) {
	t.asking = false
	t.next = now.Add(t.cfg.retry())
}

// Lost notes the proxy's word that the lock is lost.
func (t *lockRenewal) Lost(now time.Time) {
	t.asking = false
	if t.reason != Taken {
		t.end(Taken, now.Add(t.cfg.mercy()))
	}
}

func (t *lockRenewal) end(why Reason, killAt time.Time) {
	t.reason = why
	if t.killAt.IsZero() || killAt.Before(t.killAt) {
		t.killAt = killAt
	}
}

// Step says what to do now, and when to ask again if nothing happens before. It is asked again at once after each
// action but actNone.
func (t *lockRenewal) Step(now time.Time) (Action, time.Time) {
	if t.killed {
		return actNone, now.Add(t.cfg.Lease)
	}
	if t.reason == Running && now.Sub(t.wake) > t.cfg.interval() { // the caller was stopped
		t.until, t.next, t.wake = now.Add(t.cfg.patience()), now, now
	}
	t.decide(now)
	switch {
	case !t.killAt.IsZero() && !now.Before(t.killAt):
		t.killed = true
		return actKill, now
	case t.reason != Running && !t.told:
		t.told = true
		return actTerminate, now
	case t.reason != Taken && !t.asking && !now.Before(t.next):
		t.asking = true
		return actExtend, now
	}
	wake := t.silent()
	if !now.Before(wake) {
		wake = t.sure.Add(t.cfg.last())
	}
	if t.cfg.MaxHold > 0 && t.reason == Running {
		wake = earlier(wake, t.began.Add(t.cfg.MaxHold))
	}
	if !t.killAt.IsZero() {
		wake = earlier(wake, t.killAt)
	}
	if t.reason != Taken && !t.asking {
		wake = earlier(wake, t.next)
	}
	t.wake = wake
	return actNone, wake
}

// silent is when silence is a reason.
func (t *lockRenewal) silent() time.Time {
	if out := t.sure.Add(t.cfg.polite()); out.After(t.until) {
		return out
	}
	return t.until
}

// decide notes what the time says.
func (t *lockRenewal) decide(now time.Time) {
	if t.reason == Taken {
		return
	}
	if !now.Before(t.silent()) {
		if t.reason == Running {
			t.reason = Silence
		}
		t.end(t.reason, t.sure.Add(t.cfg.last()))
	} else if t.reason == Silence {
		t.killAt = time.Time{} // the proxy has answered: the lock is held while the command ends
	}
	if limit := t.began.Add(t.cfg.MaxHold); t.cfg.MaxHold > 0 && t.reason == Running && !now.Before(limit) {
		t.end(heldOut, now.Add(t.cfg.polite()))
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}
