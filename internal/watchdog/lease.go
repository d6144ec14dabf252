package watchdog

import "time"

// Lease is one tracked lease, from Track on. It may be a part of the record of what it is of. Its methods may be called
// from any goroutine, also from OnLost.
type Lease struct {
	w *Watchdog // immutable from Track on

	// w.mu guards the fields below.
	of       any
	ttl      time.Duration
	until    time.Duration // never: no limit
	fixed    bool
	every    time.Duration // between two renewals; 0: there are none
	group    *group
	deadline time.Duration // see the invariant in the package doc; at most until
	next     time.Duration // when the next renewal is due, if the lease is renewable

	index   int // in w.heap; -1 once over
	renewal renewal
	pauses  int      // Pause calls that no Resume or Continue has ended
	then    []func() // of Pause: to run when the renewal on its way is settled
}

// renewal says where the next renewal of a lease is.
type renewal uint8

const (
	unstarted renewal = iota // the scheduler queues it when it is due, if there is to be one
	queued                   // it waits in group.ready; an element there that is not queued is void
	inFlight                 // it is on its way
	outdated                 // it is on its way, for an entry that Resume has replaced
)

// over reports whether the lease was lost or forgotten. A renewal may still be on its way.
func (l *Lease) over() bool { return l.index < 0 }

// loss is a decided loss on its way to OnLost.
type loss struct {
	of     any
	reason Reason
}

// Track watches a lease that has been acquired: a new one, or one that was lost and is held all the same. sentAt is the
// instant, with its monotonic reading, before the acquire was sent: the lease's deadline is sentAt + TTL.
func (w *Watchdog) Track(l *Lease, e Entry, sentAt time.Time) {
	if l.w == nil {
		l.w = w
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	l.setLocked(e, sentAt)
	if l.renewal == inFlight { // of the lease that was lost
		l.renewal = outdated
	}
	w.heap.push(l, l.deadline)
	l.planLocked()
}

// Over reports whether the lease was lost or forgotten, and not tracked again since.
func (l *Lease) Over() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.over()
}

// Deadline is the instant up to which the lease cannot have ended by itself in Redis.
func (l *Lease) Deadline() time.Time {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	return l.w.base.Add(l.deadline)
}

// Pause orders a renewal and another command on the same lock. No renewal of this lease begins after the call, until
// Resume or Continue; the deadline is still watched. Pause reports whether a renewal is on its way: then runs from its
// job as soon as its answer, error or time limit is in. Else then does not run. Several pauses may overlap: renewals go
// on when each has been ended. nil: the command does not wait for a renewal on its way.
func (l *Lease) Pause(then func()) (waits bool) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.pauses++
	l.unqueueLocked()
	l.planLocked()
	if then == nil || l.renewal != inFlight && l.renewal != outdated {
		return false
	}
	l.then = append(l.then, then)
	return true
}

// Resume ends a Pause after a command that set the lease anew: a re-entry, a partial release, an extension. The entry
// replaces the old one and the deadline counts from sentAt, as with Track. It returns false if the lease has been lost
// or forgotten meanwhile; if the lock is held all the same, Track it again.
func (l *Lease) Resume(sentAt time.Time, e Entry) bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.pauses = max(0, l.pauses-1)
	if l.over() {
		return false
	}
	old := l.group
	l.setLocked(e, sentAt)
	l.w.leaveLocked(old) // after joining, so that a group of one lease survives
	l.unqueueLocked()
	if l.renewal == inFlight { // only if the caller did not wait for Pause
		l.renewal = outdated
	}
	l.planLocked()
	return true
}

// Continue ends a Pause after a command that changed nothing or was never sent: the lease goes on as it was. It
// returns false if the lease has been lost or forgotten meanwhile.
func (l *Lease) Continue() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	l.pauses = max(0, l.pauses-1)
	l.planLocked()
	return !l.over()
}

// Shorten is for a command that was sent at sentAt and whose answer was lost: it may have set the lease to ttl, or may
// still do so. From now on the lease counts as the shorter one, and is renewed with that length. It ends no Pause.
func (l *Lease) Shorten(sentAt time.Time, ttl time.Duration) {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.over() || ttl >= l.ttl {
		return
	}
	// If the lease was set later than that, the command is executed later still.
	set := max(sentAt.Sub(l.w.base), l.deadline-l.ttl)
	l.ttl = ttl
	l.deadline = min(l.deadline, set+ttl)
	if !l.fixed {
		l.every = min(l.every, ttl/renewalsPerTTL)
	}
	l.next = min(l.next, set+l.every)
	l.planLocked()
}

// Forget ends the watch, as after a release: no renewal begins and no loss is decided afterwards. It returns false if
// the lease was over before; a loss decided before may reach OnLost a moment later. Forget does not wait for a renewal
// on its way: Pause does.
func (l *Lease) Forget() bool {
	l.w.mu.Lock()
	defer l.w.mu.Unlock()
	if l.over() {
		return false
	}
	l.endLocked()
	return true
}

// setLocked takes over an entry and joins its group.
func (l *Lease) setLocked(e Entry, sentAt time.Time) {
	sent := sentAt.Sub(l.w.base)
	l.of, l.ttl, l.fixed, l.every = e.Of, e.TTL, e.Fixed, e.Kept
	if third := e.TTL / renewalsPerTTL; !e.Fixed && (e.Kept == 0 || third < e.Kept) {
		l.every = third
	}
	l.until = never
	if !e.Until.IsZero() {
		l.until = e.Until.Sub(l.w.base)
	}
	l.group = l.w.joinLocked(e.Group)
	l.extendLocked(sent, e.TTL)
}

// extendLocked counts the lease anew from the instant before it was set in Redis.
func (l *Lease) extendLocked(sent, ttl time.Duration) {
	l.deadline = min(sent+min(ttl, never-max(0, sent)), l.until) // fixed leases may be centuries long
	l.next = sent + l.every
}

// planLocked puts the lease in its place in the heap: under its renewal or, if none is to be started, its deadline.
func (l *Lease) planLocked() {
	if l.over() {
		return
	}
	due := l.deadline
	if l.renewableLocked() {
		due = min(due, l.next)
	}
	l.w.heap.fix(l, due)
	l.w.wakeLocked(due)
}

// unqueueLocked takes back a renewal that is not on its way yet.
func (l *Lease) unqueueLocked() {
	if l.renewal == queued {
		l.renewal = unstarted
	}
}

// renewableLocked reports whether a renewal may be started when it is due. A lease that reaches its limit already
// would gain nothing.
func (l *Lease) renewableLocked() bool {
	return l.every > 0 && l.renewal == unstarted && l.pauses == 0 && l.deadline < l.until
}

// retryAfter is the pause between two attempts; short leases need more than one within their third.
func (l *Lease) retryAfter() time.Duration {
	return min(l.w.opts.retryEvery, max(l.ttl/10, time.Millisecond))
}

// endReason is why the lease is lost when its deadline passes.
func (l *Lease) endReason() Reason {
	switch {
	case l.deadline >= l.until:
		return ReasonMaxHold
	case l.fixed:
		return ReasonExpired
	default:
		return ReasonDeadline
	}
}

func (l *Lease) loseLocked(r Reason) loss {
	l.endLocked()
	return loss{l.of, r}
}

func (l *Lease) endLocked() {
	l.unqueueLocked()
	l.w.heap.remove(l)
	l.w.leaveLocked(l.group)
}
